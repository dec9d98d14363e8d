//! What a user may change about grace periods, for the whole process: by the environment variable, or as it runs.
//!
//! The variable is read by whoever first wants a grace period, or asks for the tunables. There is nobody to hand an error
//! to, so a wrong variable is told on stderr, once, and changes nothing; [`Params::from_env`] returns the same error.

use std::time::Duration;

use sync::{
    OnceLock, Tunable,
    fork::{self, Handler},
};

pub use crate::params::RcuTunables as Tunables;
use crate::params::{Params, VARIABLE};

pub(super) static EARLY_QS: Tunable = Tunable::new(1);
static WAKE_FROM_GP: Tunable = Tunable::new(1);
static FIRST_FQS_MS: Tunable = Tunable::new(0);
pub(super) static NEXT_FQS_MS: Tunable = Tunable::new(0);
pub(super) static BOOST: Tunable = Tunable::new(1);
pub(super) static STALL_TIMEOUT_MS: Tunable = Tunable::new(21_000);

/// There once the environment has been read.
static FROM_ENV: OnceLock<()> = OnceLock::new();

static HANDLER: Handler = Handler {
    settle: || {
        tunables();
    },
    ..Handler::IDLE
};

/// Reads the environment, the first time.
#[inline]
fn settle() {
    if FROM_ENV.get().is_none() && !cfg!(any(loom, shuttle)) {
        settle_now();
    }
}

#[cold]
fn settle_now() {
    fork::register(&HANDLER);
    FROM_ENV.get_or_init(|| match Params::from_env() {
        Ok(params) => store(params.rcu),
        Err(error) => eprintln!("afterwork: {VARIABLE}: {error}; RCU keeps its defaults"),
    });
}

/// Changes how grace periods are run, from the next one on.
///
/// Before, they are run as the environment says: `AFTERWORK=rcu.boost=off,rcu.stall_timeout=1000`, by the names in
/// [`Tunables`]. Fields taken from [`tunables`] keep that.
///
/// # Blocking
///
/// Never.
///
/// # Examples
///
/// ```
/// use afterwork::rcu::{self, Tunables};
///
/// rcu::set_tunables(Tunables { boost: false, ..rcu::tunables() });
/// assert!(!rcu::tunables().boost);
/// ```
pub fn set_tunables(tunables: Tunables) {
    // Before, so that it does not overwrite what is wanted here.
    settle();
    store(tunables);
}

fn store(tunables: Tunables) {
    EARLY_QS.set(tunables.early_qs.into());
    WAKE_FROM_GP.set(tunables.wake_from_gp.into());
    FIRST_FQS_MS.set(tunables.first_fqs_ms);
    NEXT_FQS_MS.set(tunables.next_fqs_ms);
    BOOST.set(tunables.boost.into());
    STALL_TIMEOUT_MS.set(tunables.stall_timeout_ms);
}

/// Returns how grace periods are run.
pub fn tunables() -> Tunables {
    settle();
    Tunables {
        early_qs: EARLY_QS.get() != 0,
        wake_from_gp: WAKE_FROM_GP.get() != 0,
        first_fqs_ms: FIRST_FQS_MS.get(),
        next_fqs_ms: NEXT_FQS_MS.get(),
        boost: BOOST.get() != 0,
        stall_timeout_ms: STALL_TIMEOUT_MS.get(),
    }
}

/// Returns `true` if whoever waits is woken by the grace period itself. Asked before anything else of a grace period, as
/// [`first_fqs_ms`] is, so these two see to it that the environment has been read.
#[inline]
pub(super) fn wake_from_gp() -> bool {
    settle();
    WAKE_FROM_GP.get() != 0
}

/// Returns how long to wait before the first look.
#[inline]
pub(super) fn first_fqs_ms() -> u32 {
    settle();
    FIRST_FQS_MS.get()
}

/// Returns how long a reader may hold up a grace period until that is reported; none for ever.
pub(super) fn stall_timeout() -> Option<Duration> {
    let timeout_ms = STALL_TIMEOUT_MS.get();
    (timeout_ms > 0).then(|| Duration::from_millis(timeout_ms.into()))
}
