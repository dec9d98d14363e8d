//! The costs of operations: nanoseconds at the interface, picoseconds inside.

macro_rules! costs {
    ($($(#[doc = $about:literal])* $name:ident = $example_ns:literal;)*) => {
        /// The costs of one machine, in picoseconds.
        #[derive(Clone, Debug)]
        pub struct Costs { $($(#[doc = $about])* pub $name: u64,)* }

        impl Costs {
            /// All names with their descriptions.
            pub const NAMES: &[(&str, &str)] = &[$((stringify!($name), concat!($($about),*))),*];

            /// Reads each cost, in nanoseconds, from `of`.
            ///
            /// # Errors
            ///
            /// Returns the first error that `of` returns.
            pub fn from_ns<E>(mut of: impl FnMut(&'static str) -> Result<f64, E>) -> Result<Self, E> {
                Ok(Self { $($name: (of(stringify!($name))? * 1000.0) as u64,)* })
            }

            /// Returns round figures for tests. They describe no real machine.
            pub fn example() -> Self {
                Self { $($name: ($example_ns * 1000.0) as u64,)* }
            }
        }
    };
}

costs! {
    /// The instructions around an access.
    instr = 1.0;
    /// A load that hits.
    load_hit = 1.0;
    /// A store that hits.
    store_hit = 1.0;
    /// A locked instruction on a line that this CPU owns.
    rmw_hit = 5.0;
    /// A full fence.
    fence = 8.0;
    /// A spin-loop hint.
    pause = 12.0;
    /// Getting a line from the SMT sibling.
    smt = 8.0;
    /// Getting a clean line from the shared cache.
    llc = 15.0;
    /// Getting a line that another core of the same shared cache has modified.
    llc_dirty = 50.0;
    /// Getting a line from another cache of the same node.
    xllc = 90.0;
    /// Getting a line from another node.
    xnode = 150.0;
    /// Getting a line that is in no cache.
    dram = 90.0;
    /// The time for which an owner keeps a line before the next request for it is served.
    hold = 15.0;
    /// The time for which a reader keeps a clean line busy.
    read_gap = 3.0;
    /// A system call, entry and exit.
    syscall = 70.0;
    /// A futex call, without the system call, while its bucket is locked.
    futex = 80.0;
    /// Waking a thread, on the waker's CPU.
    ttwu = 350.0;
    /// Putting a thread on another CPU's run queue.
    rq_lock = 60.0;
    /// Sending an interrupt to an idle CPU.
    ipi_send = 300.0;
    /// Setting the flag of an idle CPU that polls it.
    poll_send = 40.0;
    /// The time from the interrupt to the thread's first instruction, on a recently idle CPU.
    idle_exit = 1500.0;
    /// The time from setting the flag to the thread's first instruction, on a CPU that polls.
    poll_exit = 700.0;
    /// The time for which an idle CPU polls before it halts.
    poll_for = 0.0;
    /// The same as `idle_exit`, on a CPU that was idle for longer than `deep_after`.
    deep_exit = 30000.0;
    /// The idle time after which a CPU is in deep idle.
    deep_after = 5000000.0;
    /// The time from interrupting a busy CPU to the thread switch on that CPU.
    ipi_busy = 1500.0;
    /// A switch to another thread.
    switch = 900.0;
    /// Going idle.
    go_idle = 500.0;
    /// `sched_yield` without a switch, apart from the call.
    sched_yield = 150.0;
    /// The time for which a thread may run before another thread on its CPU runs.
    slice = 3000000.0;
    /// The virtual run time by which a woken thread must be behind the running one to preempt it.
    wakeup_gran = 1000000.0;
    /// Migrating a waiting thread to a CPU that goes idle.
    pull = 2000.0;
    /// The interval at which idle CPUs check for waiting threads.
    balance = 4000000.0;
    /// Starting a thread.
    spawn = 15000.0;
    /// Reading the monotonic clock.
    clock = 25.0;
    /// Reading the CPU's counter.
    tsc = 8.0;
    /// Reading the CPU's number.
    getcpu = 1.0;
    /// `sched_setaffinity`.
    set_affinity = 2000.0;
    /// An expedited membarrier, without the cost of each CPU.
    membarrier = 1500.0;
    /// An expedited membarrier, for each CPU that it interrupts.
    membarrier_each = 300.0;
    /// The interrupt of a membarrier, on the interrupted CPU.
    membarrier_irq = 800.0;
    /// The time from the interrupt of a timer to the wake-up.
    timer_irq = 1500.0;
    /// In the model of the kernel's workqueue: the code per item outside of the lock.
    wq_path = 100.0;
    /// In the same model: the code of each section under the pool's lock.
    wq_locked = 60.0;
}
