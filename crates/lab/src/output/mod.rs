//! The printed results: as text (`text`) with tables (`table`), as JSON ([`record`]) or as a page
//! (`page`). A `run::Run` contains the lines of a run in order.

pub(crate) mod answer;
pub(crate) mod outcome;
pub(crate) mod page;
pub mod record;
pub(crate) mod run;
pub(crate) mod sources;
pub(crate) mod table;
pub(crate) mod text;
pub(crate) mod verdict;
pub(crate) mod words;
