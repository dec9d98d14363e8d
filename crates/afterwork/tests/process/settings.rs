//! Settings of the whole process: limits, priorities, its stops and its end.

use rustix::process::{
    Pid, Resource, Rlimit, Signal, WaitOptions, getpid, kill_process,
    set_parent_process_death_signal, setrlimit, waitpid,
};
use sync::thread::ThreadId;
use topology::CpuSet;

use crate::*;

fn reject_membarrier() {
    const fn step(code: u32, k: u32, jump_if_false: u8) -> libc::sock_filter {
        libc::sock_filter { code: code as u16, jt: 0, jf: jump_if_false, k }
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
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
    // SAFETY: the arguments are numbers, and a filter program that outlives the calls.
    unsafe {
        assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
        let (set, to) = (libc::SECCOMP_SET_MODE_FILTER, &raw const program);
        let entered = libc::syscall(libc::SYS_seccomp, set, libc::SECCOMP_FILTER_FLAG_TSYNC, to);
        assert_eq!(entered, 0, "{}", io::Error::last_os_error());
    }
}

/// Starts a thread that reads once and then stays idle. Only a barrier can detect that it is idle.
fn quiet_reader(read: impl FnOnce() + Send + 'static) -> mpsc::Sender<()> {
    let (done, wait) = mpsc::channel::<()>();
    let (ready, is_ready) = mpsc::channel();
    spawn(move || {
        read();
        ready.send(()).unwrap();
        wait.recv().ok();
    });
    is_ready.recv().unwrap();
    done
}

#[test]
fn membarrier_that_starts_to_fail_ends_the_process() {
    let _alone = alone();
    let bodies: [fn(); 3] = [
        || {
            let _quiet = quiet_reader(|| drop(rcu::read()));
            rcu::synchronize();
        },
        || {
            let _quiet = quiet_reader(|| drop(rcu::read()));
            rcu::call(|| ());
            rcu::barrier();
        },
        || {
            let domain = Domain::new();
            let read = domain.clone();
            let _quiet = quiet_reader(move || drop(read.read()));
            domain.synchronize();
        },
    ];
    for body in bodies {
        let (status, output) = in_child(|| {
            rcu::synchronize();
            quiet_reader(|| drop(rcu::read()));
            if !sync::asym::init() {
                // Without `membarrier` there is nothing to test.
                std::process::abort();
            }
            reject_membarrier();
            // The process ends even if the caller catches panics.
            catch_unwind(body).ok();
        });
        assert_eq!(status.signal(), Some(libc::SIGABRT), "{status} {output}");
        let is_reported = output.lines().filter(|line| line.contains("membarrier")).count() == 1;
        assert!(is_reported || !sync::asym::init(), "{output:?}");
    }
}

/// Returns `true` if this process may have real-time threads. Otherwise no thread is boosted.
fn may_boost() -> bool {
    // SAFETY: the call reads a structure of numbers.
    let asked = thread::spawn(|| unsafe {
        let param = libc::sched_param { sched_priority: 1 };
        libc::sched_setscheduler(0, libc::SCHED_FIFO, &param) == 0
    });
    asked.join().unwrap()
}

fn policy() -> i32 {
    // SAFETY: the call takes a number.
    unsafe { libc::sched_getscheduler(0) }
}

/// Runs a reader that computes in a section, with a waiter, until `done` returns a value.
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

/// Starts a thread with the C library, without changes by the standard library. Returns its policy.
fn policy_of_new_thread() -> i32 {
    extern "C" fn main(_: *mut libc::c_void) -> *mut libc::c_void {
        std::ptr::without_provenance_mut(policy() as usize)
    }
    let mut result = std::ptr::null_mut();
    // SAFETY: the thread takes no argument, and is joined.
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
fn threads_started_by_a_boosted_reader_are_not_boosted() {
    let _alone = alone();
    if !may_boost() {
        return;
    }
    succeeds_in_child(|| {
        let started_by_boosted = || {
            (policy() & libc::SCHED_FIFO != 0).then(|| {
                let Some(pid) = children::fork() else {
                    exit(policy());
                };
                (policy_of_new_thread(), wait_for(pid).code().unwrap())
            })
        };
        let ordinary = (libc::SCHED_OTHER, libc::SCHED_OTHER);
        // This runs twice, because the first boost must restore the thread's settings.
        assert_eq!(waited_for(started_by_boosted), ordinary);
        assert_eq!(waited_for(started_by_boosted), ordinary);
    });
}

#[test]
fn no_reader_is_boosted_where_the_kernel_limits_real_time() {
    let _alone = alone();
    if !may_boost() {
        return;
    }
    succeeds_in_child(|| {
        let limit = Rlimit { current: Some(50_000), maximum: Some(50_000) };
        setrlimit(Resource::Rttime, limit).unwrap();
        let start = Instant::now();
        // This is longer than the limit on CPU time without a sleep.
        let enough = move || (start.elapsed().as_millis() > 200).then_some(());
        waited_for(enough);
    });
}

/// Settings that a thread may inherit from the thread that starts it.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Inherited {
    cpus: String,
    blocked: String,
    policy: i32,
    nice: i32,
}

impl Inherited {
    fn of(thread: i32) -> io::Result<Self> {
        let status = format!("/proc/self/task/{thread}/status");
        Ok(Self {
            cpus: field_of(&status, "Cpus_allowed:")?,
            blocked: field_of(&status, "SigBlk:")?,
            // SAFETY: the call takes a number.
            policy: unsafe { libc::sched_getscheduler(thread) },
            // SAFETY: the call takes numbers.
            nice: unsafe { libc::getpriority(libc::PRIO_PROCESS, thread as libc::id_t) },
        })
    }
}

/// Gives the calling thread unusual settings: one CPU, an extreme priority, blocked signals.
fn become_odd() {
    // SAFETY: zeroed sets and structures are valid, and the calls read them.
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

/// Returns the settings of each thread of this process whose name is in `ours`, with the name.
fn threads(ours: &[&str]) -> Vec<(String, Inherited)> {
    // A thread that exits during the scan is left out.
    let all = std::fs::read_dir("/proc/self/task").unwrap().filter_map(|task| {
        let id: i32 = task.unwrap().file_name().to_str().unwrap().parse().unwrap();
        let name = std::fs::read_to_string(format!("/proc/self/task/{id}/comm")).ok()?;
        Some((name.trim_end().to_owned(), Inherited::of(id).ok()?))
    });
    all.filter(|(name, _)| ours.iter().any(|ours| name.starts_with(ours))).collect()
}

#[test]
fn library_threads_inherit_from_the_first_thread() {
    let _alone = alone();
    succeeds_in_child(|| {
        let odd = spawn(|| {
            become_odd();
            let domain = Domain::new();
            rcu::call(|| ());
            domain.call(|| ());
            let queue = Workqueue::builder("odd").build().unwrap();
            queue.spawn(|| ()).join().unwrap();
            rcu::barrier();
            domain.barrier();
            let first = Inherited::of(std::process::id() as i32).unwrap();
            let ours = ["rcu", "aw-srcu", "aw/manager", "aw/rescuer", "aw/reserve"];
            let is_like_first = |(name, has): &(String, Inherited)| {
                let mut has = has.clone();
                if name == "aw/manager" {
                    // The manager's own CPU mask reflects the CPUs of the registry.
                    has.cpus = first.cpus.clone();
                }
                has == first
            };
            // A new thread may not have its settings yet, and the thread of a domain without
            // callbacks exits. The alarm limits this loop.
            until(|| {
                domain.call(|| ());
                let found = threads(&ours);
                found.len() >= ours.len() && found.iter().all(is_like_first)
            });
        });
        odd.join().unwrap_or_else(|payload| resume_unwind(payload));
    });
}

struct WorksAtExit(Workqueue);

sync::on_drop!(WorksAtExit, this => {
    this.0.spawn_detached(|| ()).unwrap();
    assert_eq!(this.0.spawn(|| 5).join().unwrap(), 5);
    this.0.flush().unwrap();
    println!("the last is done");
});

thread_local!(static LAST: RefCell<Option<WorksAtExit>> = const { RefCell::new(None) });

#[test]
fn a_process_may_end_inside_an_item_or_while_items_run() {
    const TEST: &str = "settings::a_process_may_end_inside_an_item_or_while_items_run";
    let Some(how) = mode() else {
        for (how, code) in [("exits", 7), ("returns", 0)] {
            let ended = this_test(TEST, how).output().unwrap();
            assert_eq!(ended.status.code(), Some(code), "{how}: {ended:?}");
            let output = String::from_utf8_lossy(&ended.stdout);
            assert_eq!(output.contains("the last is done"), code == 0, "{output}");
        }
        return;
    };
    limit_time();
    let queue = workqueue::system_unbound().unwrap();
    for _ in 0..50 {
        queue.spawn_detached(|| thread::sleep(Duration::from_millis(1))).unwrap();
    }
    if how == "exits" {
        let _ = queue.spawn(|| std::process::exit(7)).join();
        unreachable!("the process has ended");
    }
    // The main thread's thread-locals are dropped after `main`.
    LAST.set(Some(WorksAtExit(queue.clone())));
}

/// Queues items on both queues and on a timer. Returns the expected final value of `nr_run`.
fn work_a_little(queues: &[Workqueue; 2], nr_run: &Arc<AtomicUsize>) -> usize {
    let runs = || {
        let nr_run = nr_run.clone();
        move || _ = nr_run.fetch_add(1, Ordering::Relaxed)
    };
    let timed = DelayedWork::new(runs());
    assert!(queues[0].enqueue_after(&timed, Duration::from_micros(300)));
    for queue in queues {
        (0..20).for_each(|_| queue.spawn_detached(runs()).unwrap());
        assert_eq!(queue.spawn(|| 5).join().unwrap(), 5);
        queue.flush().unwrap();
    }
    until(|| !timed.is_pending());
    timed.flush().unwrap();
    41
}

fn loose_and_strict() -> [Workqueue; 2] {
    let strict = Workqueue::builder("strict").per_cpu();
    [Workqueue::builder("loose"), strict].map(|builder| builder.build().unwrap())
}

/// The other process acts as `taskset -a -p` does.
#[test]
fn work_proceeds_while_another_process_moves_its_threads() {
    let _alone = alone();
    succeeds_in_child(|| {
        let (queues, nr_run) = (loose_and_strict(), Arc::new(AtomicUsize::new(0)));
        let all = sync::cpu::affinity().unwrap();
        let one: CpuSet = all.iter().take(1).collect();
        let mut nr_due = 0;
        for round in 0..30 {
            for task in std::fs::read_dir("/proc/self/task").unwrap() {
                let name = task.unwrap().file_name();
                let thread = ThreadId(name.to_str().unwrap().parse().unwrap());
                // The thread may have exited.
                sync::cpu::set_affinity(Some(thread), [&one, &all][round % 2]).ok();
            }
            nr_due += work_a_little(&queues, &nr_run);
        }
        queues.iter().for_each(|queue| queue.drain().unwrap());
        assert_eq!(nr_run.load(Ordering::Relaxed), nr_due);
    });
}

/// The other process acts as a shell or a debugger does.
#[test]
fn work_resumes_after_the_process_was_stopped() {
    let _alone = alone();
    succeeds_in_child(|| {
        let (queues, nr_run) = (loose_and_strict(), Arc::new(AtomicUsize::new(0)));
        let me = getpid();
        let Some(stopper) = children::fork() else {
            set_parent_process_death_signal(Some(Signal::KILL)).unwrap();
            let state = || {
                let stat = std::fs::read_to_string(format!("/proc/{me}/stat")).unwrap();
                stat[stat.rfind(')').unwrap() + 2..].chars().next()
            };
            for _ in 0..20 {
                for (signal, stops) in [(Signal::STOP, true), (Signal::CONT, false)] {
                    kill_process(me, signal).unwrap();
                    until(|| (state() == Some('T')) == stops);
                }
            }
            exit(0);
        };
        let mut nr_due = 0;
        let ended = loop {
            if let Some(ended) = waitpid(Pid::from_raw(stopper), WaitOptions::NOHANG).unwrap() {
                break ended;
            }
            nr_due += work_a_little(&queues, &nr_run);
        };
        queues.iter().for_each(|queue| queue.drain().unwrap());
        assert_eq!((nr_run.load(Ordering::Relaxed), ended.1.exit_status()), (nr_due, Some(0)));
    });
}

#[test]
fn publish_reports_a_failed_thread_creation() {
    let _alone = alone();
    succeeds_in_child(|| {
        let no_threads = NoThreads::begin();
        for _ in 0..2 {
            let refused = observe::publish().expect_err("it has a thread");
            assert_eq!(refused.kind(), io::ErrorKind::WouldBlock);
        }
        drop(no_threads);
        let path = observe::publish().unwrap();
        assert!(path.exists() && observe::unpublish() && !path.exists());
    });
}
