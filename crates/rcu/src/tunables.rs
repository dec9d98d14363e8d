//! The process-wide tunables of grace periods, from the environment variable or set at run time.
//!
//! The environment variable is read on the first use of a grace period, of a callback or of the
//! tunables. If it is invalid and contains the word `strict`, it changes nothing and is reported
//! once on stderr, because no caller could handle the error.

use std::time::Duration;

pub use base::internal::rcu_tunables::Tunables;
#[cfg(feature = "params")]
use base::internal::{panics::write_line, params};
use sync::Tunable;
#[cfg(feature = "params")]
use sync::{
    OnceLock,
    fork::{self, Handler},
};

pub(super) static EARLY_QS: Tunable = Tunable::new(1);
#[cfg(feature = "baselines")]
static WAKE_FROM_GP: Tunable = Tunable::new(1);
static FIRST_FQS_MS: Tunable = Tunable::new(0);
pub(super) static NEXT_FQS_MS: Tunable = Tunable::new(0);
pub(super) static BOOST: Tunable = Tunable::new(1);
pub(super) static STALL_TIMEOUT_MS: Tunable = Tunable::new(21_000);
pub(super) static QHIMARK: Tunable = Tunable::new(10_000);

/// Set once the environment has been read.
#[cfg(feature = "params")]
static FROM_ENV: OnceLock<()> = OnceLock::new();

#[cfg(feature = "params")]
static HANDLER: Handler = Handler { settle, ..Handler::IDLE };

/// Reads the environment, on the first call. Does nothing without the feature `params`.
#[inline]
pub(super) fn settle() {
    #[cfg(feature = "params")]
    if FROM_ENV.get().is_none() && !cfg!(any(loom, shuttle)) {
        settle_now();
    }
}

#[cfg(feature = "params")]
#[cold]
fn settle_now() {
    fork::register(&HANDLER);
    FROM_ENV.get_or_init(|| match params::Params::from_env() {
        Ok(found) => store(found.rcu),
        Err(error) => write_line(&format!("{}: {error}; RCU keeps its defaults", params::VARIABLE)),
    });
}

/// Changes the tunables of the whole process, from the next grace period on.
///
/// Before the first call, the environment determines the tunables, under the names in [`Tunables`]:
/// `AFTERWORK=rcu.boost=off,rcu.stall_timeout=1000`. Without the feature `params` of `afterwork`,
/// which is enabled by default, they start with their default values. To change one field and keep
/// the others, start from the result of [`tunables`].
///
/// # Blocking
///
/// Never blocks.
///
/// # Examples
///
/// ```
/// use afterwork::rcu::{self, Tunables};
///
/// rcu::set_tunables(Tunables { boost: false, ..rcu::tunables() });
/// assert!(!rcu::tunables().boost);
/// ```
#[doc(alias("rcutree", "rcu_cpu_stall_timeout"))]
pub fn set_tunables(tunables: Tunables) {
    // The environment is read first, so that it does not overwrite `tunables` later.
    settle();
    store(tunables);
}

fn store(tunables: Tunables) {
    EARLY_QS.set(tunables.early_qs.into());
    #[cfg(feature = "baselines")]
    WAKE_FROM_GP.set(tunables.wake_from_gp.into());
    FIRST_FQS_MS.set(tunables.first_fqs_ms);
    NEXT_FQS_MS.set(tunables.next_fqs_ms);
    BOOST.set(tunables.boost.into());
    STALL_TIMEOUT_MS.set(tunables.stall_timeout_ms);
    QHIMARK.set(tunables.qhimark);
}

/// Returns the current tunables.
pub fn tunables() -> Tunables {
    settle();
    Tunables {
        early_qs: EARLY_QS.get() != 0,
        #[cfg(feature = "baselines")]
        wake_from_gp: WAKE_FROM_GP.get() != 0,
        first_fqs_ms: FIRST_FQS_MS.get(),
        next_fqs_ms: NEXT_FQS_MS.get(),
        boost: BOOST.get() != 0,
        stall_timeout_ms: STALL_TIMEOUT_MS.get(),
        qhimark: QHIMARK.get(),
    }
}

#[cfg(feature = "baselines")]
pub(super) fn wake_from_gp() -> bool {
    settle();
    WAKE_FROM_GP.get() != 0
}

/// Returns the time to wait before the first scan. Reads the environment, because a grace period
/// reads this tunable first.
#[inline]
pub(super) fn first_fqs_ms() -> u32 {
    settle();
    FIRST_FQS_MS.get()
}

/// Returns the time after which a reader that delays a grace period is reported, if it is.
pub(super) fn stall_timeout() -> Option<Duration> {
    let timeout_ms = STALL_TIMEOUT_MS.get();
    (timeout_ms > 0).then(|| Duration::from_millis(timeout_ms.into()))
}
