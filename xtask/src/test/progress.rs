//! The progress of a layer, printed to stderr.

use std::io::IsTerminal;
use std::time::{Duration, Instant};

use super::libtest::in_words;
use super::plan::Layer;
use super::tally::LayerTally;
use crate::report::talk;

/// The interval between progress lines in a log.
const HEARTBEAT: Duration = Duration::from_secs(30);
/// The width of the live line. A line that wraps could not be erased. Every terminal has at least
/// 80 columns.
const LIVE_COLUMNS: usize = 79;

#[derive(Debug)]
pub struct Progress {
    layer: &'static Layer,
    start: Instant,
    last_shown: Instant,
    doing: String,
    is_live: bool,
}

impl Progress {
    pub fn new(layer: &'static Layer) -> Self {
        talk(&format!("{}: {}\n", layer.name, layer.asks));
        let now = Instant::now();
        let is_live = std::io::stderr().is_terminal();
        Self { layer, start: now, last_shown: now, doing: String::new(), is_live }
    }

    pub fn seconds(&self) -> f64 {
        self.start.elapsed().as_secs_f64()
    }

    pub fn say(&mut self, text: &str) {
        if self.is_live {
            talk("\r\x1b[K");
        }
        talk(&format!("  {:>6.1} s  {text}\n", self.seconds()));
        self.last_shown = Instant::now();
    }

    /// Stores the command's latest line of output, which the live line shows.
    pub fn doing(&mut self, line: &str) {
        if !line.trim().is_empty() {
            self.doing = line.trim().to_string();
        }
        self.tick();
    }

    /// Refreshes the live line. In a log, prints a line every `HEARTBEAT` instead.
    pub fn tick(&mut self) {
        if self.is_live {
            let text = format!("  {:>6.1} s  {}", self.seconds(), self.doing);
            let shown: String =
                text.chars().filter(|c| !c.is_control()).take(LIVE_COLUMNS).collect();
            talk(&format!("\r\x1b[K{shown}"));
        } else if self.last_shown.elapsed() >= HEARTBEAT {
            let doing = self.doing.clone();
            self.say(&doing);
        }
    }

    pub fn show(&mut self, command: &str, output: &[String]) {
        self.say(&format!("failed: {command}"));
        for line in output {
            talk(&format!("{line}\n"));
        }
    }

    pub fn done(&mut self, tally: &LayerTally) {
        self.say(&format!("{} total: {}", self.layer.name, in_words(tally.count)));
    }
}
