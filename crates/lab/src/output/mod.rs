//! How results are told: as [mod@text] in [tables](table), as [JSON](record), as a [page](mod@page).

pub mod page;
pub mod record;
pub mod table;
pub mod text;
