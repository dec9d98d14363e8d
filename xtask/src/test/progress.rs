//! What a person sees while a layer runs; all of it on stderr.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use super::libtest::told;
use super::plan::Layer;
use super::tally::LayerTally;
use crate::report::talk;

/// How often a log that nobody watches is told that all is well.
const HEARTBEAT: Duration = Duration::from_secs(30);
/// The live line must not wrap, or it could not be wiped; 80 columns is what every terminal has.
const LIVE_COLUMNS: usize = 79;

/// Tells of one layer.
#[derive(Debug)]
pub struct Progress {
    layer: &'static Layer,
    start: Instant,
    last_told: Instant,
    doing: String,
    is_live: bool,
}

impl Progress {
    /// Begins a layer.
    pub fn new(layer: &'static Layer) -> Self {
        talk(&format!("{}: {}\n", layer.name, layer.asks));
        let now = Instant::now();
        let is_live = std::io::stderr().is_terminal();
        Self {
            layer,
            start: now,
            last_told: now,
            doing: String::new(),
            is_live,
        }
    }

    /// Returns how long the layer has taken.
    pub fn seconds(&self) -> f64 {
        self.start.elapsed().as_secs_f64()
    }

    /// Tells `text`, with the time.
    pub fn say(&mut self, text: &str) {
        self.wipe();
        talk(&format!("  {:>6.1} s  {text}\n", self.seconds()));
        self.last_told = Instant::now();
    }

    /// Remembers what the command said last, for the live line.
    pub fn doing(&mut self, line: &str) {
        if !line.trim().is_empty() {
            self.doing = line.trim().to_string();
        }
        self.tick();
    }

    /// Lets time pass.
    pub fn tick(&mut self) {
        if self.is_live {
            let text = format!("  {:>6.1} s  {}", self.seconds(), self.doing);
            let shown: String = text
                .chars()
                .filter(|c| !c.is_control())
                .take(LIVE_COLUMNS)
                .collect();
            talk(&format!("\r\x1b[K{shown}"));
        } else if self.last_told.elapsed() >= HEARTBEAT {
            let doing = self.doing.clone();
            self.say(&doing);
        }
    }

    /// Shows all that a command printed, because it failed.
    pub fn show(&mut self, command: &str, output: &[String]) {
        self.say(&format!("this failed: {command}"));
        for line in output {
            talk(&format!("{line}\n"));
        }
    }

    /// Ends the layer.
    pub fn done(&mut self, tally: &LayerTally) {
        self.say(&format!(
            "{} in all: {}",
            self.layer.name,
            told(tally.count)
        ));
    }

    fn wipe(&self) {
        if self.is_live {
            talk("\r\x1b[K");
        }
    }
}
