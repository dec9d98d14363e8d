//! Results are formatted as [text](mod@text) with [tables](table), as [JSON](record) or as a
//! [page](mod@page). [Verdicts](verdict) are put into [words], and [answers](answer) of `try` are
//! classified by [outcome]. [sources] has the tables that compare published figures. A [`run::Run`]
//! contains the lines of a run in order.

pub mod answer;
pub mod outcome;
pub mod page;
pub mod record;
pub mod run;
pub mod sources;
pub mod table;
pub mod text;
pub mod verdict;
pub mod words;
