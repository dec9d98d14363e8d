//! What it costs to be looked at: the same load unpublished, published, and beside somebody who looks.

use std::thread;
use std::time::Duration;

use afterwork::observe;
use top::exit::Stop;

use super::shape::Shape;
use super::subject::Subject;
use crate::harness::beside::{Attendant, beside};
use crate::harness::case::Sample;
use top::top::Watched;

/// From one look to the next: a hundred times as often as `afterwork top` does it.
pub const PAUSE: Duration = Duration::from_millis(10);

/// Who can see the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seen {
    /// Nobody.
    Hidden,
    /// Whoever wants to, and nobody does.
    Published,
    /// Somebody looks.
    Watched,
}

impl Seen {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Hidden, Self::Published, Self::Watched];

    /// Returns the variant's name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Hidden => "hidden",
            Self::Published => "published",
            Self::Watched => "watched",
        }
    }
}

/// Hides the process when it is dropped.
struct Shown;

impl Drop for Shown {
    fn drop(&mut self) {
        observe::unpublish();
    }
}

/// Runs the case once with a pool that has just been started; a run is thrown away of which nobody saw a part.
pub fn run<S: Subject>(
    seen: Seen,
    shape: &Shape,
    start: impl Fn() -> Result<S, Stop>,
) -> Result<Option<Sample>, Stop> {
    observe::unpublish();
    if seen == Seen::Hidden {
        return shape.run(&start()?);
    }
    let page =
        observe::publish().map_err(|error| Stop::because("cannot show this process", error))?;
    let _shown = Shown;
    let subject = start()?;
    if seen == Seen::Published {
        return shape.run(&subject);
    }
    let watch = |_: usize, attendant: &mut Attendant<'_>| {
        let Ok(mut watched) = Watched::open(&page) else {
            return;
        };
        // One that is not answered takes longer than may pass without a look.
        while attendant.goes_on() && watched.look().is_ok() {
            thread::sleep(PAUSE);
        }
    };
    match beside(1, watch, || shape.run(&subject)) {
        Ok((sample, _)) => sample,
        Err(absent) => Ok(Some(Sample::thrown_away(absent))),
    }
}
