/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Workqueues by the kernel's names, over the library afterwork.
 *
 * For code in C11 and C++17 that was written for the kernel, or by its rules. An item is part of its user's structure: fixed
 * in size, nothing to destroy, nothing allocated when it is queued. Its function gets its address, from which container_of
 * leads to the structure, and may free it.
 *
 * Threads need no registration. Functions that wait may be called wherever a thread may sleep; the others do not wait for
 * workers. A child of fork has no workers: queues of its parent are not its own, and to use one ends the child with a line. Items
 * of its parent that were not idle are lost there, and are laid out anew before they are used; a timer that was armed is idle,
 * and to cancel it is nothing.
 *
 * Misuse
 *
 * The library reports misuse that it can detect on stderr, with the name of the function: NULL, an
 * item that is not initialised, not aligned or without a function, a queue that was destroyed, an
 * item that flushes itself, more enables than disables, a queue that is flushed or drained from one
 * of its own items. A debug build of the library then ends the process by abort; another build
 * returns what the comment of the function documents. Some misuse cannot be detected, and corrupts
 * memory as it does in the kernel: freeing a pending item, initializing a pending item again,
 * leaving a function by longjmp. In any build, the process ends with one line if a C++ exception or
 * pthread_exit leaves a function, or if a function returns in another read-side critical section
 * than it was called in.
 *
 * Tests of the library hold this file against it: sizes, alignments and every symbol.
 */
#ifndef AFTERWORK_WORKQUEUE_H
#define AFTERWORK_WORKQUEUE_H

#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef __cplusplus
#define AW_STATIC_ASSERT(cond, text) static_assert(cond, text)
extern "C" {
#else
#define AW_STATIC_ASSERT(cond, text) _Static_assert(cond, text)
#endif

/*
 * Jiffies in a second: what delays are counted in. <sys/param.h> brings an HZ of 100, in which nothing here counts. What it has
 * that from comes first, whichever of the two headers a program names first, so that ours stays.
 */
#if defined(HZ) && !defined(EXEC_PAGESIZE) && HZ != 1000
#error "afterwork counts delays in milliseconds: HZ is 1000"
#endif
#if defined(__has_include)
#if __has_include(<asm/param.h>)
#include <asm/param.h>
#endif
#endif
#undef HZ
#define HZ 1000

#ifndef container_of
/* The structure of which PTR points at MEMBER. */
#ifdef __cplusplus
#define container_of(ptr, type, member) \
	(reinterpret_cast<type *>(reinterpret_cast<char *>(ptr) - offsetof(type, member)))
#else
#define container_of(ptr, type, member) ((type *)(void *)((char *)(ptr) - offsetof(type, member)))
#endif
#endif

/*
 * Gives an object of the library the kernel's name; its symbol begins with aw_, so a program may
 * have an object of the same name.
 */
#define AW_SYMBOL(name) __asm__(#name)

struct workqueue_struct;
struct work_struct;

/**
 * typedef work_func_t - what an item calls
 * @work: the item, which this may free, queue again, or initialise anew
 *
 * Runs on a worker, and never twice at once for one item, whatever queues it is put into. May sleep, except in a queue
 * with WQ_BH.
 */
typedef void (*work_func_t)(struct work_struct *work);

/**
 * struct work_struct - a work item
 *
 * Part of the user's structure; laid out by INIT_WORK or DECLARE_WORK, and then the library's. An item is known by its
 * address and its function, which has the offset that it has in the kernel. It needs the alignment of a pointer.
 */
struct work_struct {
	void *aw_unused[2];
	uint64_t aw_magic;
	work_func_t func;
	void *aw_private[3];
	unsigned long aw_data;
};

/**
 * struct delayed_work - a work item with a timer
 * @work: the item; to_delayed_work leads back
 */
struct delayed_work {
	struct work_struct work;
	uint64_t aw_private[6];
};

AW_STATIC_ASSERT(sizeof(struct work_struct) == 64, "a work_struct has 64 bytes");
AW_STATIC_ASSERT(sizeof(struct delayed_work) == 112, "a delayed_work has 112 bytes");
AW_STATIC_ASSERT(offsetof(struct work_struct, func) == 24, "its function has the offset of the kernel");
AW_STATIC_ASSERT(offsetof(struct work_struct, aw_data) == 56, "its state is its last word");
AW_STATIC_ASSERT(offsetof(struct delayed_work, work) == 0, "its item stands first");

/**
 * struct rcu_work - a work item that is queued after a grace period of RCU
 * @work: the item; to_rcu_work leads back
 */
struct rcu_work {
	struct work_struct work;
	void *aw_private[3];
	struct workqueue_struct *wq;
};

AW_STATIC_ASSERT(sizeof(struct rcu_work) == 96, "an rcu_work has 96 bytes");

#define AW_WORK_MAGIC 0xf770726b776f726bull
#define AW_WORK_INIT(f) { { NULL, NULL }, AW_WORK_MAGIC, (f), { NULL, NULL, NULL }, 0 }

/* DECLARE_WORK - define an item called N that calls F. */
#define DECLARE_WORK(n, f) struct work_struct n = AW_WORK_INIT(f)

/* DECLARE_DELAYED_WORK - define a delayed item called N that calls F. */
#define DECLARE_DELAYED_WORK(n, f) struct delayed_work n = { AW_WORK_INIT(f), { 0, 0, 0, 0, 0, 0 } }

static inline void aw_init_work(struct work_struct *work, work_func_t func)
{
	work->aw_private[0] = NULL;
	work->aw_private[1] = NULL;
	work->aw_private[2] = NULL;
	work->aw_data = 0;
	work->func = func;
	work->aw_magic = AW_WORK_MAGIC;
}

/*
 * INIT_WORK - lay out an item that calls F
 *
 * Again at any time at which it is not pending; inside its own run too.
 */
#define INIT_WORK(work, f) aw_init_work((work), (f))
#define INIT_WORK_ONSTACK(work, f) aw_init_work((work), (f))
/* INIT_DELAYED_WORK - as INIT_WORK, of a delayed item. */
#define INIT_DELAYED_WORK(dwork, f) aw_init_work(&(dwork)->work, (f))
#define INIT_DELAYED_WORK_ONSTACK(dwork, f) aw_init_work(&(dwork)->work, (f))
/* INIT_RCU_WORK - as INIT_WORK, of an item that waits for a grace period. */
#define INIT_RCU_WORK(rwork, f) aw_init_work(&(rwork)->work, (f))
#define INIT_RCU_WORK_ONSTACK(rwork, f) aw_init_work(&(rwork)->work, (f))
/* Nothing is to be destroyed; for code that says so. */
static inline void destroy_work_on_stack(struct work_struct *work)
{
	(void)work;
}

static inline void destroy_delayed_work_on_stack(struct delayed_work *dwork)
{
	(void)dwork;
}

/* to_delayed_work - the delayed item of which WORK is the item. */
static inline struct delayed_work *to_delayed_work(struct work_struct *work)
{
	return container_of(work, struct delayed_work, work);
}

/* to_rcu_work - the item of which WORK is the item. */
static inline struct rcu_work *to_rcu_work(struct work_struct *work)
{
	return container_of(work, struct rcu_work, work);
}

/* ---- queues ---- */

/* struct cpumask - a set of CPUs. */
struct cpumask {
	unsigned long bits[16];
};

static inline void cpumask_setall(struct cpumask *mask)
{
	memset(mask, 0xff, sizeof(*mask));
}

static inline void cpumask_clear(struct cpumask *mask)
{
	memset(mask, 0, sizeof(*mask));
}

static inline void cpumask_set_cpu(unsigned int cpu, struct cpumask *mask)
{
	if (cpu < 1024)
		mask->bits[cpu / 64] |= 1ul << (cpu % 64);
}

static inline void cpumask_clear_cpu(unsigned int cpu, struct cpumask *mask)
{
	if (cpu < 1024)
		mask->bits[cpu / 64] &= ~(1ul << (cpu % 64));
}

static inline bool cpumask_test_cpu(unsigned int cpu, const struct cpumask *mask)
{
	return cpu < 1024 && (mask->bits[cpu / 64] >> (cpu % 64) & 1) != 0;
}

static inline void cpumask_copy(struct cpumask *to, const struct cpumask *from)
{
	*to = *from;
}

enum wq_affn_scope {
	WQ_AFFN_DFL = 0, /* as it is */
	WQ_AFFN_CPU,
	WQ_AFFN_SMT,
	WQ_AFFN_CACHE_SHARD,
	WQ_AFFN_CACHE,
	WQ_AFFN_NUMA,
	WQ_AFFN_SYSTEM
};

/**
 * struct workqueue_attrs - where the workers of a queue run
 * @nice: their nice value, -20 to 19; a rescuer (nice 0) and a thread that helps in flush_work run items at their own
 * @affn_scope: of enum wq_affn_scope: which CPUs share workers
 * @affn_strict: whether workers never leave these
 * @cpumask: the CPUs to which they keep; all is what the process may use
 */
struct workqueue_attrs {
	int nice;
	int affn_scope;
	bool affn_strict;
	struct cpumask cpumask[1];
};

AW_STATIC_ASSERT(sizeof(struct workqueue_attrs) == 144, "workqueue_attrs have 144 bytes");

/* alloc_workqueue_attrs - make attributes that change nothing; NULL without memory. */
static inline struct workqueue_attrs *alloc_workqueue_attrs(void)
{
	struct workqueue_attrs *attrs = (struct workqueue_attrs *)calloc(1, sizeof(struct workqueue_attrs));

	if (attrs)
		cpumask_setall(attrs->cpumask);
	return attrs;
}

/* free_workqueue_attrs - free them; NULL is nothing. */
static inline void free_workqueue_attrs(struct workqueue_attrs *attrs)
{
	free(attrs);
}

enum wq_flags {
	WQ_BH = 1 << 0,            /* items may not sleep; a worker a CPU, of high priority where that may be had; beside WQ_HIGHPRI and WQ_PERCPU alone */
	WQ_UNBOUND = 1 << 1,       /* workers of a pod of CPUs, not of one */
	WQ_FREEZABLE = 1 << 2,     /* accepted; nothing freezes */
	WQ_MEM_RECLAIM = 1 << 3,   /* goes on where no thread can be had: has one set aside */
	WQ_HIGHPRI = 1 << 4,       /* workers of nice value -20; ordinary ones without the right to that */
	WQ_CPU_INTENSIVE = 1 << 5, /* items do not keep others from starting */
	WQ_SYSFS = 1 << 6,         /* accepted; there is no sysfs */
	WQ_POWER_EFFICIENT = 1 << 7, /* accepted */
	WQ_PERCPU = 1 << 8         /* a worker pool a CPU: as without WQ_UNBOUND */
};

enum {
	WQ_MAX_ACTIVE = 512, /* the most that max_active may be */
	WQ_UNBOUND_MAX_ACTIVE = WQ_MAX_ACTIVE, /* the same with WQ_UNBOUND */
	WQ_DFL_ACTIVE = WQ_MAX_ACTIVE / 2, /* the limit if max_active is 0 */
	WORK_CPU_UNBOUND = -1, /* the CPU that queues */
	WQ_NAME_LEN = 64,
	WORKER_DESC_LEN = 32,
	AW_WQ_ORDERED = 1 << 17
};

enum work_busy_flags {
	WORK_BUSY_PENDING = 1 << 0,
	WORK_BUSY_RUNNING = 1 << 1
};

/* afterwork_hook_t - a function that each thread that runs items calls when it starts or ends. */
typedef void (*afterwork_hook_t)(void);

/* The library's own symbols; their contracts stand at the names below. */
struct workqueue_struct *aw_alloc_workqueue(const char *name, unsigned int flags, int max_active);
void aw_destroy_workqueue(struct workqueue_struct *wq);
void aw_flush_workqueue(struct workqueue_struct *wq);
void aw_drain_workqueue(struct workqueue_struct *wq);
int aw_workqueue_set_max_active(struct workqueue_struct *wq, int max_active);
bool aw_queue_work(int cpu, struct workqueue_struct *wq, struct work_struct *work);
bool aw_queue_delayed_work(int cpu, struct workqueue_struct *wq, struct delayed_work *dwork, unsigned long delay);
bool aw_mod_delayed_work(int cpu, struct workqueue_struct *wq, struct delayed_work *dwork, unsigned long delay);
bool aw_flush_work(struct work_struct *work);
bool aw_cancel_work(struct work_struct *work);
bool aw_cancel_work_sync(struct work_struct *work);
bool aw_disable_work(struct work_struct *work);
bool aw_disable_work_sync(struct work_struct *work);
bool aw_enable_work(struct work_struct *work);
unsigned int aw_work_busy(struct work_struct *work);
bool aw_flush_delayed_work(struct delayed_work *dwork);
bool aw_cancel_delayed_work(struct delayed_work *dwork);
bool aw_cancel_delayed_work_sync(struct delayed_work *dwork);
bool aw_disable_delayed_work(struct delayed_work *dwork);
bool aw_disable_delayed_work_sync(struct delayed_work *dwork);
struct work_struct *aw_current_work(void);
bool aw_queue_work_node(int node, struct workqueue_struct *wq, struct work_struct *work);
bool aw_queue_rcu_work(struct workqueue_struct *wq, struct rcu_work *rwork);
bool aw_flush_rcu_work(struct rcu_work *rwork);
int aw_apply_workqueue_attrs(struct workqueue_struct *wq, const struct workqueue_attrs *attrs);
int aw_schedule_on_each_cpu(work_func_t func);
void aw_set_worker_desc(const char *desc);
afterwork_hook_t aw_on_worker_start(afterwork_hook_t hook);
afterwork_hook_t aw_on_worker_stop(afterwork_hook_t hook);
long aw_blocking(long (*func)(void *data), void *data);

/**
 * alloc_workqueue - make a queue
 * @fmt: its name, as of printf; what is beyond WQ_NAME_LEN is cut off
 * @flags: of enum wq_flags
 * @max_active: how many of its items run at once, on each CPU or, with WQ_UNBOUND, in the whole process (the kernel: on each NUMA node);
 *	0 for the default. More than WQ_MAX_ACTIVE is that
 *
 * Without WQ_UNBOUND an item runs on the CPU that it was queued on. Returns NULL for flags that contradict each other or
 * are unknown, a negative @max_active, and where there is no memory or thread to be had. AFTERWORK in the environment says something
 * unknown: misuse, NULL. May sleep.
 */
#if defined(__GNUC__)
__attribute__((format(printf, 1, 4)))
#endif
static inline struct workqueue_struct *alloc_workqueue(const char *fmt, unsigned int flags, int max_active, ...)
{
	char name[WQ_NAME_LEN];
	va_list args;

	va_start(args, max_active);
	(void)vsnprintf(name, sizeof(name), fmt, args);
	va_end(args);
	return aw_alloc_workqueue(name, flags, max_active);
}

/**
 * alloc_ordered_workqueue - make a queue whose items run one at a time, in the order of their queueing
 * @fmt: its name, as of printf, with what follows @flags
 * @flags: of enum wq_flags; WQ_MEM_RECLAIM has a meaning here
 *
 * As alloc_workqueue.
 */
#if defined(__GNUC__)
__attribute__((format(printf, 1, 3)))
#endif
static inline struct workqueue_struct *alloc_ordered_workqueue(const char *fmt, unsigned int flags, ...)
{
	char name[WQ_NAME_LEN];
	va_list args;

	va_start(args, flags);
	(void)vsnprintf(name, sizeof(name), fmt, args);
	va_end(args);
	return aw_alloc_workqueue(name, flags | WQ_UNBOUND | AW_WQ_ORDERED, 1);
}

#define create_workqueue(name) alloc_workqueue("%s", WQ_MEM_RECLAIM, 1, (name))
#define create_singlethread_workqueue(name) alloc_ordered_workqueue("%s", WQ_MEM_RECLAIM, (name))

/**
 * destroy_workqueue - run all that a queue has, and end it
 * @wq: the queue, which nobody else uses any more; NULL is nothing
 *
 * Timers that are armed for it are taken back: such items do not run, and are idle. Waits until the last item has ended.
 * From one of its own items it would wait for itself: ends the process with a line, in any build.
 */
static inline void destroy_workqueue(struct workqueue_struct *wq)
{
	aw_destroy_workqueue(wq);
}

/**
 * flush_workqueue - wait for all that was queued before
 * @wq: the queue
 *
 * From one of its own items: misuse; goes on without waiting.
 */
static inline void flush_workqueue(struct workqueue_struct *wq)
{
	aw_flush_workqueue(wq);
}

/**
 * drain_workqueue - wait until a queue is empty
 * @wq: the queue
 *
 * Meanwhile only its own items may queue to it. From one of these: misuse; goes on without waiting.
 */
static inline void drain_workqueue(struct workqueue_struct *wq)
{
	aw_drain_workqueue(wq);
}

/**
 * workqueue_set_max_active - change how many items of a queue run at once
 * @wq: the queue
 * @max_active: 1 to WQ_MAX_ACTIVE; more is that. An ordered queue's is 1
 *
 * What else is asked for is misuse, and changes nothing. Differs from Linux: returns 0, or -EINVAL.
 */
static inline int workqueue_set_max_active(struct workqueue_struct *wq, int max_active)
{
	return aw_workqueue_set_max_active(wq, max_active);
}

/**
 * apply_workqueue_attrs - change where the workers of a queue run
 * @wq: the queue
 * @attrs: how; they stay the caller's
 *
 * Items that are queued later go there. Returns 0; -EINVAL for what makes no sense, and for a queue with WQ_BH; -EPERM for a nice value
 * that the process may not set; -EBUSY for an ordered queue, which is drained first, from one of its own items. Then nothing has changed. A
 * system queue: misuse, -EINVAL. May sleep.
 */
static inline int apply_workqueue_attrs(struct workqueue_struct *wq, const struct workqueue_attrs *attrs)
{
	return aw_apply_workqueue_attrs(wq, attrs);
}

#define create_freezable_workqueue(name) alloc_workqueue("%s", WQ_FREEZABLE | WQ_UNBOUND | WQ_MEM_RECLAIM, 1, (name))

/*
 * Process-wide queues. Each is built on its first use, in a child of fork too. A program must not
 * flush, drain, destroy or replace them. The last three equal system_wq or system_unbound_wq,
 * because nothing freezes.
 */
extern struct workqueue_struct *system_wq AW_SYMBOL(aw_system_wq);
extern struct workqueue_struct *system_percpu_wq AW_SYMBOL(aw_system_percpu_wq);
extern struct workqueue_struct *system_highpri_wq AW_SYMBOL(aw_system_highpri_wq);
extern struct workqueue_struct *system_long_wq AW_SYMBOL(aw_system_long_wq);
extern struct workqueue_struct *system_unbound_wq AW_SYMBOL(aw_system_unbound_wq);
extern struct workqueue_struct *system_dfl_wq AW_SYMBOL(aw_system_dfl_wq);
extern struct workqueue_struct *system_freezable_wq AW_SYMBOL(aw_system_freezable_wq);
extern struct workqueue_struct *system_power_efficient_wq AW_SYMBOL(aw_system_power_efficient_wq);
extern struct workqueue_struct *system_freezable_power_efficient_wq AW_SYMBOL(aw_system_freezable_power_efficient_wq);

/* ---- items ---- */

/**
 * queue_work - queue an item
 * @wq: the queue
 * @work: the item
 *
 * Returns true if that will make it run, once; false when it is pending already, or disabled, or @wq is being drained by
 * somebody else. All that was written before is seen by the run, also when this returns false because it is pending. An
 * item that runs may be queued: it runs again afterwards. It stays where it is until its function is called, or it has been
 * cancelled or flushed. Misuse returns false.
 *
 * Never waits for a worker or for memory. Not from signal handlers.
 */
static inline bool queue_work(struct workqueue_struct *wq, struct work_struct *work)
{
	return aw_queue_work(WORK_CPU_UNBOUND, wq, work);
}

/**
 * queue_work_on - queue an item on a CPU
 * @cpu: its number; negative is the caller's, and one that the queue may not use stands for another
 * @wq: the queue
 * @work: the item
 *
 * As queue_work.
 */
static inline bool queue_work_on(int cpu, struct workqueue_struct *wq, struct work_struct *work)
{
	return aw_queue_work(cpu, wq, work);
}

/**
 * queue_work_node - queue an item on a NUMA node
 * @node: its number; negative is the caller's, and one that the queue may not use stands for another
 * @wq: the queue
 * @work: the item
 *
 * As queue_work.
 */
static inline bool queue_work_node(int node, struct workqueue_struct *wq, struct work_struct *work)
{
	return aw_queue_work_node(node, wq, work);
}

/**
 * queue_rcu_work - queue an item after a grace period of RCU
 * @wq: the queue, whose end waits for that
 * @rwork: the item
 *
 * Returns true if that will make it run, after all sections that run now have ended; false as of queue_work. Until the grace period is
 * over no cancel gets it; disable_work keeps it from being queued then, and its memory is the user's only after flush_rcu_work. Never
 * waits, allocates nothing.
 */
static inline bool queue_rcu_work(struct workqueue_struct *wq, struct rcu_work *rwork)
{
	return aw_queue_rcu_work(wq, rwork);
}

/* flush_rcu_work - flush_work, its grace period included. Not in a section of RCU. */
static inline bool flush_rcu_work(struct rcu_work *rwork)
{
	return aw_flush_rcu_work(rwork);
}

/**
 * schedule_on_each_cpu - run a function once on each CPU that the process may use, and wait for all
 * runs
 * @func: the function
 *
 * Uses system_wq. Returns 0, or -ENOMEM. Differs from Linux: CPUs that the process may not use, and
 * isolated CPUs, are left out.
 */
static inline int schedule_on_each_cpu(work_func_t func)
{
	return aw_schedule_on_each_cpu(func);
}

/* schedule_work - queue_work to system_wq. */
static inline bool schedule_work(struct work_struct *work)
{
	return queue_work(system_wq, work);
}

/* schedule_work_on - queue_work_on to system_wq. */
static inline bool schedule_work_on(int cpu, struct work_struct *work)
{
	return queue_work_on(cpu, system_wq, work);
}

/**
 * flush_work - wait until an item is idle, as far as it is queued now
 * @work: the item
 *
 * Returns true if there was anything to wait for. All that its function did is seen then. One whose timer is armed is not
 * waited for. An item of a queue with WQ_UNBOUND that nobody has come for yet is run here and now, as one of the queue's, on
 * this thread; ordered queues never do that. An item that flushes one of its own queue may still stand still at @max_active, as in the
 * kernel: a worker that has come for the other waits for the caller's place. Misuse, and an item that flushes itself is that: returns
 * false without waiting.
 */
static inline bool flush_work(struct work_struct *work)
{
	return aw_flush_work(work);
}

/**
 * cancel_work - take an item out of its queue
 * @work: the item
 *
 * Returns true if it was pending, and will not run. It may be running. Looks at all items before it in its list.
 */
static inline bool cancel_work(struct work_struct *work)
{
	return aw_cancel_work(work);
}

/**
 * cancel_work_sync - take an item out of its queue, and wait until it does not run
 * @work: the item
 *
 * Returns true if it was pending. On return it is idle, and its memory the user's; while this waits queueing is refused,
 * also by the item itself. Inside the item's own run it does not wait (Differs from Linux, where it never returns).
 */
static inline bool cancel_work_sync(struct work_struct *work)
{
	return aw_cancel_work_sync(work);
}

/**
 * disable_work - refuse to queue an item, and cancel it
 * @work: the item
 *
 * Until as many enable_work have come. Returns true if it was pending. At most 65535 times; more is misuse.
 */
static inline bool disable_work(struct work_struct *work)
{
	return aw_disable_work(work);
}

/* disable_work_sync - disable_work, and wait as cancel_work_sync. */
static inline bool disable_work_sync(struct work_struct *work)
{
	return aw_disable_work_sync(work);
}

/**
 * enable_work - take one disable_work back
 * @work: the item
 *
 * Returns true if it may be queued again. Of one that is not disabled: misuse, false.
 */
static inline bool enable_work(struct work_struct *work)
{
	return aw_enable_work(work);
}

/* enable_and_queue_work - enable_work, and queue_work if that was the last one; true if it was queued. */
static inline bool enable_and_queue_work(struct workqueue_struct *wq, struct work_struct *work)
{
	return enable_work(work) && queue_work(wq, work);
}

struct aw_work_on_cpu {
	struct work_struct work;
	long (*func)(void *arg);
	void *arg;
	long answer;
};

static inline void aw_run_on_cpu(struct work_struct *work)
{
	struct aw_work_on_cpu *it = container_of(work, struct aw_work_on_cpu, work);

	it->answer = it->func(it->arg);
}

/**
 * work_on_cpu - run a function on a CPU, and wait for it
 * @cpu: as of queue_work_on
 * @func: the function
 * @arg: what it is given
 *
 * By system_wq. Returns what @func returned.
 */
static inline long work_on_cpu(int cpu, long (*func)(void *arg), void *arg)
{
	struct aw_work_on_cpu it;

	it.func = func;
	it.arg = arg;
	it.answer = 0;
	INIT_WORK_ONSTACK(&it.work, aw_run_on_cpu);
	schedule_work_on(cpu, &it.work);
	flush_work(&it.work);
	return it.answer;
}

/* work_busy - what an item is at: of enum work_busy_flags. The answer may be old when it arrives. */
static inline unsigned int work_busy(struct work_struct *work)
{
	return aw_work_busy(work);
}

/* work_pending - whether an item is pending, its timer included. The answer may be old when it arrives. */
static inline bool work_pending(struct work_struct *work)
{
	return (work_busy(work) & WORK_BUSY_PENDING) != 0;
}

/* The bit of an item's state that is set while the item is pending, its timer included. */
enum {
	WORK_STRUCT_PENDING_BIT = 0,
	WORK_STRUCT_PENDING = 1 << WORK_STRUCT_PENDING_BIT
};

/*
 * work_data_bits - the word that contains this bit. Read only: the library changes it atomically.
 */
#define work_data_bits(work) (&(work)->aw_data)

/* current_work - the item that the caller runs; NULL for none. It may have been freed. */
static inline struct work_struct *current_work(void)
{
	return aw_current_work();
}

/**
 * set_worker_desc - describe the running item in the name of its thread
 * @fmt: a few words, as for printf
 *
 * In an item, the words follow the thread's name until the item ends. The kernel keeps 15 bytes.
 * Outside of an item this does nothing.
 */
#if defined(__GNUC__)
__attribute__((format(printf, 1, 2)))
#endif
static inline void set_worker_desc(const char *fmt, ...)
{
	char desc[WORKER_DESC_LEN];
	va_list args;

	va_start(args, fmt);
	(void)vsnprintf(desc, sizeof(desc), fmt, args);
	va_end(args);
	aw_set_worker_desc(desc);
}

/**
 * afterwork_on_worker_start - set a function that each thread that runs items calls before its
 * first item
 * @hook: the function; NULL for none
 *
 * Threads that start from now on call it; to reach all of them, call this before the first queue is
 * made. Returns the previous hook, which a hook that extends it must call. The kernel has no such
 * function.
 */
static inline afterwork_hook_t afterwork_on_worker_start(afterwork_hook_t hook)
{
	return aw_on_worker_start(hook);
}

/**
 * afterwork_on_worker_stop - set a function that each thread that runs items calls after its last
 * item
 * @hook: the function; NULL for none
 *
 * Like afterwork_on_worker_start. Threads end after they have been idle for long, but not when the
 * process exits.
 */
static inline afterwork_hook_t afterwork_on_worker_stop(afterwork_hook_t hook)
{
	return aw_on_worker_stop(hook);
}

/* ---- delayed items ---- */

/**
 * queue_delayed_work - queue an item after a delay
 * @wq: the queue
 * @dwork: the item
 * @delay: in jiffies, which are milliseconds; 0 is at once
 *
 * Returns true if that will make it run; false as of queue_work, its timer included. Never queued before its time. The
 * first one of a process starts a thread for timers; where that cannot be had the process ends with a line.
 */
static inline bool queue_delayed_work(struct workqueue_struct *wq, struct delayed_work *dwork, unsigned long delay)
{
	return aw_queue_delayed_work(WORK_CPU_UNBOUND, wq, dwork, delay);
}

/* queue_delayed_work_on - queue_delayed_work, as queue_work_on. */
static inline bool queue_delayed_work_on(int cpu, struct workqueue_struct *wq, struct delayed_work *dwork,
					 unsigned long delay)
{
	return aw_queue_delayed_work(cpu, wq, dwork, delay);
}

/**
 * mod_delayed_work - have an item queued after a delay from now, pending or not
 * @wq: the queue
 * @dwork: the item
 * @delay: in jiffies; 0 is at once
 *
 * Returns true if it was pending, which it is throughout then: whoever queues it meanwhile gets false. One that is disabled is
 * cancelled.
 */
static inline bool mod_delayed_work(struct workqueue_struct *wq, struct delayed_work *dwork, unsigned long delay)
{
	return aw_mod_delayed_work(WORK_CPU_UNBOUND, wq, dwork, delay);
}

/* mod_delayed_work_on - mod_delayed_work, as queue_work_on. */
static inline bool mod_delayed_work_on(int cpu, struct workqueue_struct *wq, struct delayed_work *dwork,
				       unsigned long delay)
{
	return aw_mod_delayed_work(cpu, wq, dwork, delay);
}

/* schedule_delayed_work - queue_delayed_work to system_wq. */
static inline bool schedule_delayed_work(struct delayed_work *dwork, unsigned long delay)
{
	return queue_delayed_work(system_wq, dwork, delay);
}

/* schedule_delayed_work_on - queue_delayed_work_on to system_wq. */
static inline bool schedule_delayed_work_on(int cpu, struct delayed_work *dwork, unsigned long delay)
{
	return queue_delayed_work_on(cpu, system_wq, dwork, delay);
}

/* flush_delayed_work - queue an item at once if its timer is armed, and flush_work. */
static inline bool flush_delayed_work(struct delayed_work *dwork)
{
	return aw_flush_delayed_work(dwork);
}

/* cancel_delayed_work - cancel_work, its timer included. */
static inline bool cancel_delayed_work(struct delayed_work *dwork)
{
	return aw_cancel_delayed_work(dwork);
}

/* cancel_delayed_work_sync - cancel_work_sync, its timer included. */
static inline bool cancel_delayed_work_sync(struct delayed_work *dwork)
{
	return aw_cancel_delayed_work_sync(dwork);
}

/* disable_delayed_work - disable_work, its timer included. */
static inline bool disable_delayed_work(struct delayed_work *dwork)
{
	return aw_disable_delayed_work(dwork);
}

/* disable_delayed_work_sync - disable_work_sync, its timer included. */
static inline bool disable_delayed_work_sync(struct delayed_work *dwork)
{
	return aw_disable_delayed_work_sync(dwork);
}

/* enable_delayed_work - enable_work. */
static inline bool enable_delayed_work(struct delayed_work *dwork)
{
	return enable_work(&dwork->work);
}

/* delayed_work_pending - work_pending. */
static inline bool delayed_work_pending(struct delayed_work *dwork)
{
	return work_pending(&dwork->work);
}

/**
 * afterwork_blocking - call what may sleep in ways that the library does not see: files, locks, other processes
 * @func: what is called
 * @data: what it is given
 *
 * Inside an item: another worker runs meanwhile. Elsewhere it only calls. There is no such name in the kernel, whose scheduler
 * notices by itself; so does the library, some milliseconds later. Returns what @func returned.
 */
static inline long afterwork_blocking(long (*func)(void *data), void *data)
{
	return aw_blocking(func, data);
}

#ifdef __cplusplus
}
#endif

#endif
