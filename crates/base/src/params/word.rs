//! Values of tunables as words.

use topology::{AffinityScope, CpuSet};

use super::{MaxActiveScope, Qpw};

/// A type of tunable values, each of which is written as a word.
pub(super) trait Word: Sized {
    /// Returns `None` if the type has no such word.
    fn read(word: &str) -> Option<Self>;
    fn word(&self) -> String;
    fn expects() -> String;
}

impl Word for bool {
    fn read(word: &str) -> Option<Self> {
        match word {
            "1" | "y" | "yes" | "on" | "true" => Some(true),
            "0" | "n" | "no" | "off" | "false" => Some(false),
            _ => None,
        }
    }
    fn word(&self) -> String {
        if *self { "on" } else { "off" }.to_owned()
    }
    fn expects() -> String {
        "on or off".to_owned()
    }
}

/// A type that has only a few values, each with its own word.
trait Named: Copy + PartialEq {
    fn words() -> Vec<(&'static str, Self)>;
}

impl<T: Named> Word for T {
    fn read(word: &str) -> Option<Self> {
        let found = T::words().into_iter().find(|(known, _)| *known == word);
        found.map(|(_, value)| value)
    }
    fn word(&self) -> String {
        let found = T::words().into_iter().find(|(_, value)| value == self);
        found.expect("each has its word").0.to_owned()
    }
    fn expects() -> String {
        let words: Vec<_> = T::words().into_iter().map(|(word, _)| word).collect();
        format!("one of {}", words.join(", "))
    }
}

impl Named for MaxActiveScope {
    fn words() -> Vec<(&'static str, Self)> {
        vec![("system", Self::System), ("node", Self::Node), ("cpu", Self::Cpu)]
    }
}

impl Named for Qpw {
    fn words() -> Vec<(&'static str, Self)> {
        Self::ALL.map(|mode| (mode.as_str(), mode)).into()
    }
}

impl Named for AffinityScope {
    fn words() -> Vec<(&'static str, Self)> {
        Self::ALL.map(|scope| (scope.as_str(), scope)).into()
    }
}

/// Lists use `+`, because a comma separates tunables.
impl Word for Option<CpuSet> {
    fn read(word: &str) -> Option<Self> {
        if word == "all" {
            return Some(None);
        }
        let cpus: CpuSet = word.replace('+', ",").parse().ok()?;
        (!cpus.is_empty()).then_some(Some(cpus))
    }
    fn word(&self) -> String {
        let list = |cpus: &CpuSet| cpus.to_string().replace(',', "+");
        self.as_ref().map_or("all".to_owned(), list)
    }
    fn expects() -> String {
        "all, or a CPU list such as 0-3+8".to_owned()
    }
}
