//! The boundary between C and Rust.

use std::any::Any;
use std::env;
use std::panic::{self, AssertUnwindSafe, catch_unwind};

use sync::process::{self, die};

pub(crate) const EINVAL: i32 = 22;
pub(crate) const ESRCH: i32 = 3;
pub(crate) const EPERM: i32 = 1;
pub(crate) const EBUSY: i32 = 16;
pub(crate) const ENOMEM: i32 = 12;

/// Runs `body`, which implements the C function `name`. A panic ends the process with one line.
#[inline]
pub(crate) fn within<R>(name: &str, body: impl FnOnce() -> R) -> R {
    catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|panicked| failed(name, &*panicked))
}

#[cold]
fn failed(name: &str, panicked: &(dyn Any + Send)) -> ! {
    let text = panicked.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panicked.downcast_ref::<String>().map(String::as_str));
    die(&format!("{name}: {}", text.unwrap_or("no message")))
}

/// Returns the common prefix of the names of the library's source files.
fn sources() -> &'static str {
    file!().split("capi/src/").next().unwrap_or_default()
}

/// Prevents panics in the library from printing anything, unless `RUST_BACKTRACE` is `full`: the
/// line with which the process ends contains their message. Panics in a program's own Rust code
/// print as usual.
#[used]
#[unsafe(link_section = ".init_array")]
static SILENCE: extern "C" fn() = silence;

extern "C" fn silence() {
    let others = panic::take_hook();
    panic::set_hook(Box::new(move |panicked| {
        let file = panicked.location().map_or("", |at| at.file());
        let is_ours = file.strip_prefix(sources()).is_some_and(|file| file.contains("/src/"));
        let is_traced = env::var_os("RUST_BACKTRACE").is_some_and(|value| value == "full");
        if !is_ours || is_traced {
            others(panicked);
        }
    }));
}

/// Reports misuse of the function `name`. Ends the process in a debug build, or returns `answer`.
#[cold]
pub(crate) fn misuse<R>(name: &str, what: &dyn std::fmt::Display, answer: R) -> R {
    let line = format!("{name}: {what}");
    if cfg!(debug_assertions) {
        die(&line);
    }
    process::write_line(&line);
    answer
}
