//! How results are told: as [mod@text] in [tables](table), as [JSON](record), as a [page](mod@page), and in
//! [words](verdict), by [what each case does](words). A [`run::Run`] has its lines in order.

pub mod page;
pub mod record;
pub mod run;
pub mod table;
pub mod text;
pub mod verdict;
pub mod words;
