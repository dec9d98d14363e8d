//! The flavor `qsbr` of `afterwork/urcu.h`: threads are always readers, and report quiescent
//! states.
//!
//! An online thread is in a section from each report to the next. All flavors share grace periods.
//!
//! | thread | in a section | a report |
//! |---|---|---|
//! | not registered, or offline | no | is misuse |
//! | online | always | ends the section and begins the next |

use std::cell::Cell;
use std::ffi::{c_int, c_uint};

use afterwork::rcu::raw::{self, Place};
use afterwork::rcu::{self};

use crate::boundary::{misuse, within};
use crate::inline::{adopt, watch_exit};
use crate::rcupdate::{Called, RcuFn, RcuHead, callback, waits};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    Unknown,
    Offline,
    Online,
}

sync::thread_local! {
    static STATE: Cell<State> = Cell::new(State::Unknown)
}

fn state() -> State {
    STATE.try_with(Cell::get).unwrap_or(State::Unknown)
}

fn set(state: State) {
    STATE.try_with(|it| it.set(state)).ok();
}

fn go_online() {
    raw::online();
    set(State::Online);
}

fn go_offline() {
    set(State::Offline);
    // SAFETY: `go_online` made the thread online. Callers no longer use earlier values.
    unsafe { raw::offline() };
    raw::park();
}

/// Takes an exiting thread that is an online reader offline, so that no grace period waits for it.
pub(crate) fn leave_at_exit() {
    if state() == State::Online {
        go_offline();
    }
}

/// Runs `body` like [`waits`]. An online thread is offline during the call.
pub(crate) fn while_offline(name: &str, body: impl FnOnce()) {
    within(name, || {
        let was_online = state() == State::Online;
        if was_online {
            go_offline();
        }
        waits(name, body);
        if was_online {
            go_online();
        }
    });
}

/// Runs a callback while this thread is an online reader, like liburcu's threads.
fn as_reader(body: impl FnOnce()) {
    let before = state();
    if before != State::Online {
        go_online();
    }
    body();
    if before != State::Online && state() == State::Online {
        go_offline();
    }
    set(before);
}

/// Calls `func` with `head` after a grace period, on a thread that is then an online reader.
///
/// # Safety
///
/// 1. The same as for [`aw_call_rcu`](crate::rcupdate::aw_call_rcu).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn aw_qsbr_call_rcu(head: *mut RcuHead, func: Option<RcuFn>) {
    within("call_rcu", || {
        if let Some(func) = callback("call_rcu", head, func) {
            let called = Called(head, func);
            // SAFETY: (1). A callback runs once.
            rcu::call(move || as_reader(|| unsafe { called.run("callback of call_rcu") }));
        }
    });
}

/// Registers this thread as a reader and makes it online.
#[unsafe(no_mangle)]
pub extern "C" fn aw_qsbr_register_thread() {
    within("rcu_register_thread", || {
        if state() != State::Unknown {
            return misuse("rcu_register_thread", &"the thread is registered already", ());
        }
        go_online();
        watch_exit();
    });
}

/// Unregisters this thread.
#[unsafe(no_mangle)]
pub extern "C" fn aw_qsbr_unregister_thread() {
    within("rcu_unregister_thread", || {
        match state() {
            State::Unknown => misuse("rcu_unregister_thread", &"the thread is not registered", ()),
            State::Online => go_offline(),
            State::Offline => (),
        }
        set(State::Unknown);
    });
}

/// Makes this thread online, so that grace periods wait for it again.
#[unsafe(no_mangle)]
pub extern "C" fn aw_qsbr_thread_online() {
    within("rcu_thread_online", || match state() {
        State::Unknown => misuse("rcu_thread_online", &"the thread is not registered", ()),
        State::Offline => go_online(),
        State::Online => (),
    });
}

/// Makes this thread offline, so that grace periods do not wait for it. It must hold no values that
/// it has read.
#[unsafe(no_mangle)]
pub extern "C" fn aw_qsbr_thread_offline() {
    within("rcu_thread_offline", || match state() {
        State::Unknown => misuse("rcu_thread_offline", &"the thread is not registered", ()),
        State::Online => go_offline(),
        State::Offline => (),
    });
}

/// Returns 1 if this thread is an online reader, otherwise 0.
#[unsafe(no_mangle)]
pub extern "C" fn aw_qsbr_read_ongoing() -> c_int {
    c_int::from(state() == State::Online)
}

/// Reports that this thread holds no values that it has read.
#[unsafe(no_mangle)]
pub extern "C" fn aw_qsbr_quiescent_state() {
    within("rcu_quiescent_state", || match state() {
        // SAFETY: `go_online` made the thread online. The caller no longer uses earlier values.
        State::Online => unsafe { raw::quiescent() },
        _ => misuse("rcu_quiescent_state", &"the thread is not online", ()),
    });
}

/// # Safety
///
/// 1. The same as for `adopt`.
#[unsafe(no_mangle)]
unsafe extern "C" fn aw_qsbr_report_slowly(reader: *mut Place, layout: c_uint) {
    aw_qsbr_quiescent_state();
    // SAFETY: (1).
    unsafe { adopt(reader, layout) };
}

#[unsafe(no_mangle)]
extern "C" fn aw_qsbr_answer() {
    // SAFETY: the inlined report calls this after its own updates.
    unsafe { raw::answer() };
}

/// Waits until all current sections have ended and all other online readers have reported.
#[unsafe(no_mangle)]
pub extern "C" fn aw_qsbr_synchronize_rcu() {
    while_offline("synchronize_rcu", rcu::synchronize);
}

/// Waits until all callbacks of earlier calls to `call_rcu` have run.
#[unsafe(no_mangle)]
pub extern "C" fn aw_qsbr_barrier() {
    while_offline("rcu_barrier", rcu::barrier);
}
