//! What is done to the process as a whole: sandboxes, limits, priorities; each in a process of its own.

#![cfg(not(any(loom, shuttle)))]

mod children;

use std::{
    io,
    os::unix::process::ExitStatusExt,
    panic::{catch_unwind, resume_unwind},
    sync::mpsc,
    thread,
    time::Instant,
};

use afterwork::{
    rcu::{self, srcu::Domain},
    workqueue::Workqueue,
};
use children::{alone, in_child, spawn};

/// Has the kernel refuse `membarrier` to this process from now on.
fn refuse_membarrier() {
    const fn step(code: u32, k: u32, jump_if_false: u8) -> libc::sock_filter {
        libc::sock_filter {
            code: code as u16,
            jt: 0,
            jf: jump_if_false,
            k,
        }
    }
    let load_number = step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0);
    let compare = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
    let answer = |k| step(libc::BPF_RET | libc::BPF_K, k, 0);
    let mut filter = [
        load_number,
        step(compare, libc::SYS_membarrier as u32, 1),
        answer(libc::SECCOMP_RET_ERRNO | libc::EPERM as u32),
        answer(libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog {
        len: filter.len() as u16,
        filter: filter.as_mut_ptr(),
    };
    // SAFETY: numbers, and a program that lives over the calls.
    unsafe {
        assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
        let (set, to) = (libc::SECCOMP_SET_MODE_FILTER, &raw const program);
        let entered = libc::syscall(libc::SYS_seccomp, set, libc::SECCOMP_FILTER_FLAG_TSYNC, to);
        assert_eq!(entered, 0, "{}", io::Error::last_os_error());
    }
}

/// Starts a thread that has just read, and reads no more: only a barrier can tell that it is idle.
fn quiet_reader() -> mpsc::Sender<()> {
    let (done, wait) = mpsc::channel::<()>();
    let (ready, is_ready) = mpsc::channel();
    spawn(move || {
        drop(rcu::read());
        ready.send(()).unwrap();
        wait.recv().ok();
    });
    is_ready.recv().unwrap();
    done
}

#[test]
fn a_barrier_that_is_refused_after_it_was_allowed_ends_the_process() {
    let _alone = alone();
    let wait: fn() = || {
        let _quiet = quiet_reader();
        rcu::synchronize();
    };
    let call: fn() = || {
        let _quiet = quiet_reader();
        rcu::call(|| ());
        rcu::barrier();
    };
    let wait_in_domain: fn() = || Domain::new().synchronize();
    for body in [wait, call, wait_in_domain] {
        let (status, told) = in_child(|| {
            rcu::synchronize();
            quiet_reader();
            if !sync::asym::init() {
                // A kernel without it refuses nothing later.
                std::process::abort();
            }
            refuse_membarrier();
            // However the caller contains it.
            catch_unwind(body).ok();
        });
        assert_eq!(status.signal(), Some(libc::SIGABRT), "{status} {told}");
        let is_told = told
            .lines()
            .filter(|line| line.contains("membarrier"))
            .count()
            == 1;
        assert!(is_told || !sync::asym::init(), "{told:?}");
    }
}

/// Returns `true` if this process may have real-time threads; without the right to it nobody is boosted.
fn may_boost() -> bool {
    // SAFETY: reads a structure of numbers.
    let asked = thread::spawn(|| unsafe {
        let param = libc::sched_param { sched_priority: 1 };
        libc::sched_setscheduler(0, libc::SCHED_FIFO, &param) == 0
    });
    asked.join().unwrap()
}

fn policy() -> i32 {
    // SAFETY: takes a number.
    unsafe { libc::sched_getscheduler(0) }
}

/// Has a reader computing in a section, for which somebody waits, until `done` says something; returns that.
fn waited_for<R: Send + 'static>(done: impl Fn() -> Option<R> + Send + 'static) -> R {
    let (began, has_begun) = mpsc::channel();
    let (said, says) = mpsc::channel();
    let reader = spawn(move || {
        let guard = rcu::read();
        began.send(()).unwrap();
        let result = loop {
            if let Some(result) = done() {
                break result;
            }
            std::hint::spin_loop();
        };
        drop(guard);
        assert_eq!(policy() & !libc::SCHED_RESET_ON_FORK, libc::SCHED_OTHER);
        said.send(result).unwrap();
    });
    has_begun.recv().unwrap();
    rcu::synchronize();
    reader.join().unwrap();
    says.recv().unwrap()
}

/// Starts a thread by the C library, which leaves it as the kernel makes it; returns its policy.
fn policy_of_new_thread() -> i32 {
    extern "C" fn main(_: *mut libc::c_void) -> *mut libc::c_void {
        std::ptr::without_provenance_mut(policy() as usize)
    }
    let mut result = std::ptr::null_mut();
    // SAFETY: the thread takes nothing, and is waited for.
    unsafe {
        let mut thread = std::mem::zeroed();
        let none = std::ptr::null();
        let refused = libc::pthread_create(&mut thread, none, main, std::ptr::null_mut());
        assert_eq!(refused, 0);
        libc::pthread_join(thread, &mut result);
    }
    result.addr() as i32
}

#[test]
fn what_a_boosted_reader_starts_is_not_boosted() {
    let _alone = alone();
    if !may_boost() {
        return;
    }
    let (status, told) = in_child(|| {
        let started_by_boosted = || {
            (policy() & libc::SCHED_FIFO != 0).then(|| {
                // SAFETY: ends at once, and says what it has.
                let pid = unsafe { libc::fork() };
                if pid == 0 {
                    // SAFETY: as above.
                    unsafe { libc::_exit(policy()) };
                }
                let mut status = 0;
                // SAFETY: `status` lives over the call.
                unsafe { libc::waitpid(pid, &mut status, 0) };
                (policy_of_new_thread(), libc::WEXITSTATUS(status))
            })
        };
        let ordinary = (libc::SCHED_OTHER, libc::SCHED_OTHER);
        // More than once: the first boost must leave the thread as it was.
        assert_eq!(waited_for(started_by_boosted), ordinary);
        assert_eq!(waited_for(started_by_boosted), ordinary);
    });
    assert!(status.success(), "{status} {told}");
}

#[test]
fn nobody_is_boosted_where_the_kernel_limits_real_time() {
    let _alone = alone();
    if !may_boost() {
        return;
    }
    let (status, told) = in_child(|| {
        let limit = libc::rlimit {
            rlim_cur: 50_000,
            rlim_max: 50_000,
        };
        // SAFETY: reads the structure.
        assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_RTTIME, &limit) }, 0);
        let start = Instant::now();
        // Past the limit, of time in which nobody else may run.
        let enough = move || (start.elapsed().as_millis() > 200).then_some(());
        waited_for(enough);
    });
    assert!(status.success(), "{status} {told}");
}

/// What a thread has that it may have from whoever started it.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Inherited {
    cpus: String,
    blocked: String,
    policy: i32,
    nice: i32,
}

impl Inherited {
    /// Of a thread of this process.
    fn of(thread: i32) -> Self {
        let status = std::fs::read_to_string(format!("/proc/self/task/{thread}/status")).unwrap();
        let field = |name| {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            line.unwrap().trim().to_owned()
        };
        Self {
            cpus: field("Cpus_allowed:"),
            blocked: field("SigBlk:"),
            // SAFETY: take numbers.
            policy: unsafe { libc::sched_getscheduler(thread) },
            // SAFETY: as above.
            nice: unsafe { libc::getpriority(libc::PRIO_PROCESS, thread as libc::id_t) },
        }
    }
}

/// Makes the calling thread unlike others: on one CPU, first or last of all, without signals.
fn become_odd() {
    // SAFETY: zeroed sets and structures are whole, and the calls read them.
    unsafe {
        let mut cpus: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(libc::sched_getcpu() as usize, &mut cpus);
        libc::sched_setaffinity(0, size_of_val(&cpus), &cpus);
        let param = libc::sched_param { sched_priority: 5 };
        if libc::sched_setscheduler(0, libc::SCHED_RR, &param) != 0 {
            libc::setpriority(libc::PRIO_PROCESS, 0, 7);
        }
        let mut signals: libc::sigset_t = std::mem::zeroed();
        libc::sigfillset(&mut signals);
        libc::pthread_sigmask(libc::SIG_SETMASK, &signals, std::ptr::null_mut());
    }
}

/// Returns what each thread of this process has whose name `ours` knows, by that name.
fn threads(ours: &[&str]) -> Vec<(String, Inherited)> {
    let all = std::fs::read_dir("/proc/self/task").unwrap().map(|task| {
        let id: i32 = task.unwrap().file_name().to_str().unwrap().parse().unwrap();
        let name = std::fs::read_to_string(format!("/proc/self/task/{id}/comm")).unwrap();
        (name.trim_end().to_owned(), Inherited::of(id))
    });
    all.filter(|(name, _)| ours.iter().any(|ours| name.starts_with(ours)))
        .collect()
}

#[test]
fn threads_of_the_library_s_are_like_the_first_thread_whoever_is_first_to_need_them() {
    let _alone = alone();
    let (status, told) = in_child(|| {
        let odd = spawn(|| {
            become_odd();
            let (sender, receiver) = mpsc::channel();
            let theirs = sender.clone();
            rcu::call(move || theirs.send(()).unwrap());
            let domain = Domain::new();
            domain.call(move || sender.send(()).unwrap());
            let queue = Workqueue::builder("odd").build().unwrap();
            queue.spawn(|| ()).join().unwrap();
            receiver.recv().unwrap();
            receiver.recv().unwrap();
            let first = Inherited::of(std::process::id() as i32);
            let ours = ["rcu", "aw-srcu", "aw/manager", "aw/rescuer"];
            let is_like_first = |(name, has): &(String, Inherited)| {
                let mut has = has.clone();
                if name == "aw/manager" {
                    // By its mask the manager knows which CPUs the registry is for.
                    has.cpus = first.cpus.clone();
                }
                has == first
            };
            // One that has begun just now may still be on its way. The alarm ends this.
            while {
                let found = threads(&ours);
                found.len() < ours.len() || !found.iter().all(is_like_first)
            } {
                thread::yield_now();
            }
        });
        odd.join().unwrap_or_else(|payload| resume_unwind(payload));
    });
    assert!(status.success(), "{status} {told}");
}
