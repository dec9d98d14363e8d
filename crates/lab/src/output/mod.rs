//! Formats of results: [mod@text] in [tables](table), [JSON](record), a [page](mod@page), and
//! [verdicts](verdict) in [words], and the [answers](answer) of `try` by their [outcome]. A
//! [`run::Run`] contains its lines in order.

pub mod answer;
pub mod outcome;
pub mod page;
pub mod record;
pub mod run;
pub mod table;
pub mod text;
pub mod verdict;
pub mod words;
