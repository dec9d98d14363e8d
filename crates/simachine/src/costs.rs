//! The costs of operations: nanoseconds at the interface, picoseconds inside.

macro_rules! costs {
    // Each row has a name, an example in nanoseconds, and the description.
    ($($name:ident = $example_ns:literal, $about:literal;)*) => {
        /// The costs of one machine, in picoseconds.
        #[derive(Clone, Debug)]
        pub struct Costs { $(#[doc = $about] pub $name: u64,)* }

        impl Costs {
            /// All names with their descriptions.
            pub const NAMES: &[(&str, &str)] = &[$((stringify!($name), $about)),*];

            /// Reads each cost, in nanoseconds, from `of`.
            pub fn from_ns(mut of: impl FnMut(&'static str) -> f64) -> Self {
                Self { $($name: (of(stringify!($name)) * 1000.0) as u64,)* }
            }

            /// Returns round figures for tests. They describe no real machine.
            pub fn example() -> Self {
                Self { $($name: ($example_ns * 1000.0) as u64,)* }
            }
        }
    };
}

costs! {
    instr = 1.0, "The instructions around an access.";
    load_hit = 1.0, "A load that hits.";
    store_hit = 1.0, "A store that hits.";
    rmw_hit = 5.0, "A locked instruction on a line that this CPU owns.";
    fence = 8.0, "A full fence.";
    pause = 12.0, "A spin-loop hint.";
    smt = 8.0, "Getting a line from the SMT sibling.";
    llc = 15.0, "Getting a clean line from the shared cache.";
    llc_dirty = 50.0, "Getting a line that another core of the same shared cache has modified.";
    xllc = 90.0, "Getting a line from another cache of the same node.";
    xnode = 150.0, "Getting a line from another node.";
    dram = 90.0, "Getting a line that is in no cache.";
    hold = 15.0, "The time for which an owner keeps a line before the next request is served.";
    read_gap = 3.0, "The time for which a reader keeps a clean line busy.";
    syscall = 70.0, "A system call, entry and exit.";
    futex = 80.0, "A futex call, without the system call, while its bucket is locked.";
    ttwu = 350.0, "Waking a thread, on the waker's CPU.";
    rq_lock = 60.0, "Putting a thread on another CPU's run queue.";
    ipi_send = 300.0, "Sending an interrupt to an idle CPU.";
    poll_send = 40.0, "Setting the flag of an idle CPU that polls it.";
    idle_exit = 1500.0, "From the interrupt to the thread's first instruction, on a recently idle CPU.";
    poll_exit = 700.0, "From setting the flag to the thread's first instruction, on a CPU that polls.";
    poll_for = 0.0, "The time for which an idle CPU polls before it halts.";
    deep_exit = 30000.0, "Like `idle_exit`, on a CPU that was idle for longer than `deep_after`.";
    deep_after = 5000000.0, "The idle time after which a CPU is in deep idle.";
    ipi_busy = 1500.0, "The time from interrupting a busy CPU to the thread switch on that CPU.";
    switch = 900.0, "A switch to another thread.";
    go_idle = 500.0, "Going idle.";
    sched_yield = 150.0, "`sched_yield` without a switch, apart from the call.";
    slice = 3000000.0, "The time for which a thread may run before another thread on its CPU runs.";
    wakeup_gran = 1000000.0, "The lead in virtual run time that costs a running thread its CPU.";
    pull = 2000.0, "Migrating a waiting thread to a CPU that goes idle.";
    balance = 4000000.0, "The interval at which idle CPUs check for waiting threads.";
    spawn = 15000.0, "Starting a thread.";
    clock = 25.0, "Reading the monotonic clock.";
    tsc = 8.0, "Reading the CPU's counter.";
    getcpu = 1.0, "Reading the CPU's number.";
    set_affinity = 2000.0, "`sched_setaffinity`.";
    membarrier = 1500.0, "An expedited membarrier, without the cost of each CPU.";
    membarrier_each = 300.0, "An expedited membarrier, for each CPU that it interrupts.";
    membarrier_irq = 800.0, "The interrupt of a membarrier, on the interrupted CPU.";
    timer_irq = 1500.0, "The time from the interrupt of a timer to the wake-up.";
    wq_path = 100.0, "In the model of the kernel's workqueue: the code of an item outside the lock.";
    wq_locked = 60.0, "In the same model: the code of each section under the pool's lock.";
}
