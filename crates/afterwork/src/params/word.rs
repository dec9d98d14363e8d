//! Values of tunables as words.

use topology::AffinityScope;

use super::{MaxActiveScope, Qpw, WakeMode};

/// A value that a tunable takes, with all its words.
pub(super) trait Word: Sized {
    /// Reads a value; `None` for a word that is none.
    fn read(word: &str) -> Option<Self>;
    /// Returns the word for a value.
    fn word(&self) -> String;
    /// Says what is read.
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

impl Word for WakeMode {
    fn read(word: &str) -> Option<Self> {
        match word {
            "deferred" => Some(Self::Deferred),
            "under_lock" => Some(Self::UnderLock),
            _ => None,
        }
    }
    fn word(&self) -> String {
        match self {
            Self::Deferred => "deferred",
            Self::UnderLock => "under_lock",
        }
        .to_owned()
    }
    fn expects() -> String {
        "deferred or under_lock".to_owned()
    }
}

impl Word for MaxActiveScope {
    fn read(word: &str) -> Option<Self> {
        match word {
            "system" => Some(Self::System),
            "node" => Some(Self::Node),
            "cpu" => Some(Self::Cpu),
            _ => None,
        }
    }
    fn word(&self) -> String {
        match self {
            Self::System => "system",
            Self::Node => "node",
            Self::Cpu => "cpu",
        }
        .to_owned()
    }
    fn expects() -> String {
        "system, node or cpu".to_owned()
    }
}

impl Word for AffinityScope {
    fn read(word: &str) -> Option<Self> {
        word.parse().ok()
    }
    fn word(&self) -> String {
        self.to_string()
    }
    fn expects() -> String {
        format!("one of {}", Self::ALL.map(Self::as_str).join(", "))
    }
}

impl Word for Qpw {
    fn read(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|qpw| qpw.as_str() == word)
    }
    fn word(&self) -> String {
        self.to_string()
    }
    fn expects() -> String {
        format!("one of {}", Self::ALL.map(Self::as_str).join(", "))
    }
}
