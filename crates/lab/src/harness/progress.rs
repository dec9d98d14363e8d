//! The progress of a bench on standard error. It is one line on a terminal, and otherwise a
//! line per repetition.

use std::fmt;
use std::io::{IsTerminal, Write, stderr};
use std::time::{Duration, Instant};

use top::talk::say;

pub struct Progress {
    show: Show,
    started: Instant,
    planned: usize,
    done: usize,
    end: Option<Instant>,
}

enum Show {
    Terminal,
    Lines,
    #[cfg(test)]
    Nothing,
}

impl Progress {
    pub fn on_stderr(planned: usize, end: Option<Instant>) -> Self {
        let is_dumb = std::env::var_os("TERM").is_some_and(|it| it == "dumb");
        let show = if stderr().is_terminal() && !is_dumb { Show::Terminal } else { Show::Lines };
        Self { show, started: Instant::now(), planned, done: 0, end }
    }

    pub fn run_begins(&self, case: &str, variant: &str) {
        let (done, planned, left) = (self.done, self.planned, self.left());
        self.overwrite(format_args!("{done}/{planned} {left}  {case}: {variant}"));
    }

    pub fn run_ended(&mut self) {
        self.done += 1;
    }

    pub fn repetition_ended(&self, case: &str, ended: usize, wanted: usize) {
        if matches!(self.show, Show::Lines) {
            say(format_args!("{case}: repetition {ended} of {wanted} done, {}", self.left()));
        }
    }

    pub fn dropped(&mut self, runs: usize) {
        self.planned = self.planned.saturating_sub(runs);
    }

    /// Removes the line while `write` uses the terminal.
    pub fn aside<T>(&self, write: impl FnOnce() -> T) -> T {
        self.overwrite(format_args!(""));
        write()
    }

    fn overwrite(&self, text: fmt::Arguments<'_>) {
        if matches!(self.show, Show::Terminal) {
            // If the terminal was closed, the error is ignored.
            let _ = write!(stderr(), "\r\x1b[K{text}");
        }
    }

    fn left(&self) -> String {
        let bound = self.end.map(|end| end.saturating_duration_since(Instant::now()));
        let left = time_left(self.started.elapsed(), self.done, self.planned);
        if bound.is_some_and(|bound| bound.is_zero()) {
            // The duration of runs that have not begun is unknown.
            return "time is up: one repetition of each remaining case".into();
        }
        in_words(left.map(|left| bound.map_or(left, |bound| left.min(bound))))
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.overwrite(format_args!(""));
    }
}

fn time_left(elapsed: Duration, done: usize, planned: usize) -> Option<Duration> {
    let left = planned.saturating_sub(done);
    (done > 0).then(|| elapsed.mul_f64(left as f64 / done as f64))
}

fn in_words(left: Option<Duration>) -> String {
    match left {
        None => "time left unknown".into(),
        Some(Duration::ZERO) => "nearly done".into(),
        Some(left) => format!("about {} left", rounded(left)),
    }
}

/// Formats a time as seconds, or as minutes and tens of seconds. Rounds it up.
pub fn rounded(time: Duration) -> String {
    match time.as_secs_f64().ceil() as u64 {
        seconds @ 0..100 => format!("{seconds} s"),
        seconds => {
            let tens = seconds.div_ceil(10);
            format!("{} min {:02} s", tens / 6, tens % 6 * 10)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Progress {
        pub fn silent() -> Self {
            Self { show: Show::Nothing, started: Instant::now(), planned: 0, done: 0, end: None }
        }
    }

    #[test]
    fn remaining_time_is_estimated_from_elapsed_time() {
        let elapsed = Duration::from_secs(10);
        assert_eq!(time_left(elapsed, 0, 8), None);
        assert_eq!(time_left(elapsed, 2, 8), Some(Duration::from_secs(30)));
        assert_eq!(time_left(elapsed, 9, 8), Some(Duration::ZERO));
    }

    #[test]
    fn remaining_time_is_shown_in_words() {
        for (ms, shown) in [
            (None, "time left unknown"),
            (Some(0), "nearly done"),
            (Some(200), "about 1 s left"),
            (Some(61_000), "about 61 s left"),
            (Some(101_000), "about 1 min 50 s left"),
        ] {
            assert_eq!(in_words(ms.map(Duration::from_millis)), shown);
        }
    }
}
