/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Workqueues with the kernel's names, implemented by the library afterwork.
 *
 * This header is for code in C11 and C++17 that was written for the kernel or follows its rules. An
 * item is part of the caller's structure. It has a fixed size, needs no destruction, and is queued
 * without an allocation. The item's function receives the item's address. container_of derives the
 * structure's address from it, and the function may free the structure.
 *
 * Threads need no registration. Functions that wait may be called wherever a thread may sleep. The
 * other functions do not wait for workers. A child of fork has no workers. If it uses a queue of
 * its parent, it ends with a message. Items that were not idle at the time of the fork are lost in
 * the child and must be initialized again. A timer that was armed is idle in the child, and
 * cancelling it does nothing.
 *
 * Misuse
 *
 * The library reports detectable misuse on stderr, with the name of the function: NULL, an item
 * that is not initialized, not aligned or without a function, a queue that was destroyed, an item
 * that flushes itself, more enables than disables, and a queue that is flushed or drained from one
 * of its own items. A debug build of the library then aborts the process. Another build returns the
 * value that the comment of the function documents. Some misuse cannot be detected, and corrupts
 * memory as it does in the kernel: freeing a pending item, initializing a pending item again, and
 * leaving a function by longjmp. In any build, the process ends with one line if a C++ exception or
 * pthread_exit leaves a function, or if a function returns with a different number of open
 * read-side critical sections than it started with.
 *
 * Tests compare the library with this file: sizes, alignments and every symbol.
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
 * The number of jiffies per second. Delays are measured in jiffies. <sys/param.h> defines an HZ of
 * 100, which nothing here uses. The header from which <sys/param.h> takes its HZ is included first,
 * so that the definition below prevails, whichever of the two headers a program includes first.
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
/* container_of - return the structure whose MEMBER is at PTR. */
#ifdef __cplusplus
#define container_of(ptr, type, member) \
	(reinterpret_cast<type *>(reinterpret_cast<char *>(ptr) - offsetof(type, member)))
#else
#define container_of(ptr, type, member) ((type *)(void *)((char *)(ptr) - offsetof(type, member)))
#endif
#endif

/*
 * Gives an object the kernel's name. The object's symbol begins with aw_, so programs may use the
 * name themselves.
 */
#define AW_SYMBOL(name) __asm__(#name)

struct workqueue_struct;
struct work_struct;

/**
 * typedef work_func_t - the function of an item
 * @work: the item, which the function may free, queue again, or initialize again
 *
 * Runs on a worker. Runs of one item never overlap. May sleep, except in a queue with WQ_BH.
 */
typedef void (*work_func_t)(struct work_struct *work);

/**
 * struct work_struct - a work item
 *
 * It is part of the caller's structure. After INIT_WORK or DECLARE_WORK it belongs to the library.
 * An item is identified by its address and its function, which has the same offset as in the
 * kernel. An item needs the alignment of a pointer.
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
 * @work: the item; to_delayed_work converts back
 */
struct delayed_work {
	struct work_struct work;
	uint64_t aw_private[6];
};

AW_STATIC_ASSERT(sizeof(struct work_struct) == 64, "a work_struct has 64 bytes");
AW_STATIC_ASSERT(sizeof(struct delayed_work) == 112, "a delayed_work has 112 bytes");
AW_STATIC_ASSERT(offsetof(struct work_struct, func) == 24, "its function has the offset of the kernel");
AW_STATIC_ASSERT(offsetof(struct work_struct, aw_data) == 56, "its state is its last word");
AW_STATIC_ASSERT(offsetof(struct delayed_work, work) == 0, "its item is the first member");

/**
 * struct rcu_work - a work item that is queued after a grace period of RCU
 * @work: the item; to_rcu_work converts back
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
 * INIT_WORK - initialize an item that calls F
 *
 * An item may be initialized again whenever it is not pending, even inside its own run.
 */
#define INIT_WORK(work, f) aw_init_work((work), (f))
#define INIT_WORK_ONSTACK(work, f) aw_init_work((work), (f))
/* INIT_DELAYED_WORK - INIT_WORK for a delayed item. */
#define INIT_DELAYED_WORK(dwork, f) aw_init_work(&(dwork)->work, (f))
#define INIT_DELAYED_WORK_ONSTACK(dwork, f) aw_init_work(&(dwork)->work, (f))
/* INIT_RCU_WORK - INIT_WORK for an item that waits for a grace period. */
#define INIT_RCU_WORK(rwork, f) aw_init_work(&(rwork)->work, (f))
#define INIT_RCU_WORK_ONSTACK(rwork, f) aw_init_work(&(rwork)->work, (f))
/* These functions do nothing, because items need no destruction. */
static inline void destroy_work_on_stack(struct work_struct *work)
{
	(void)work;
}

static inline void destroy_delayed_work_on_stack(struct delayed_work *dwork)
{
	(void)dwork;
}

/* to_delayed_work - the delayed item that contains WORK. */
static inline struct delayed_work *to_delayed_work(struct work_struct *work)
{
	return container_of(work, struct delayed_work, work);
}

/* to_rcu_work - the rcu_work that contains WORK. */
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
	WQ_AFFN_DFL = 0, /* no change */
	WQ_AFFN_CPU,
	WQ_AFFN_SMT,
	WQ_AFFN_CACHE_SHARD,
	WQ_AFFN_CACHE,
	WQ_AFFN_NUMA,
	WQ_AFFN_SYSTEM
};

/**
 * struct workqueue_attrs - where the workers of a queue run
 * @nice: their nice value, -20 to 19; rescuers and threads that help in flush_work have their own
 * @affn_scope: a value of enum wq_affn_scope: which CPUs share workers
 * @affn_strict: true if workers never leave these CPUs
 * @cpumask: the CPUs on which workers may run; a full mask means all CPUs that the process may use
 */
struct workqueue_attrs {
	int nice;
	int affn_scope;
	bool affn_strict;
	struct cpumask cpumask[1];
};

AW_STATIC_ASSERT(sizeof(struct workqueue_attrs) == 144, "workqueue_attrs have 144 bytes");

/*
 * alloc_workqueue_attrs - allocate attributes that change nothing. Returns NULL if there is no
 * memory.
 */
static inline struct workqueue_attrs *alloc_workqueue_attrs(void)
{
	struct workqueue_attrs *attrs = (struct workqueue_attrs *)calloc(1, sizeof(struct workqueue_attrs));

	if (attrs)
		cpumask_setall(attrs->cpumask);
	return attrs;
}

/* free_workqueue_attrs - free attributes. Ignores NULL. */
static inline void free_workqueue_attrs(struct workqueue_attrs *attrs)
{
	free(attrs);
}

enum wq_flags {
	/* WQ_BH has one worker for each CPU, at high priority if the process may set it. */
	WQ_BH = 1 << 0,            /* items must not sleep; only with WQ_HIGHPRI and WQ_PERCPU */
	WQ_UNBOUND = 1 << 1,       /* workers serve a pod of CPUs instead of one CPU */
	WQ_FREEZABLE = 1 << 2,     /* accepted; nothing freezes */
	WQ_MEM_RECLAIM = 1 << 3,   /* makes progress without new threads: has a rescuer */
	WQ_HIGHPRI = 1 << 4,       /* workers at nice -20, or ordinary ones without permission */
	WQ_CPU_INTENSIVE = 1 << 5, /* items do not delay the start of others */
	WQ_SYSFS = 1 << 6,         /* accepted; there is no sysfs */
	WQ_POWER_EFFICIENT = 1 << 7, /* accepted */
	WQ_PERCPU = 1 << 8         /* a worker pool for each CPU, which is the default */
};

enum {
	WQ_MAX_ACTIVE = 512, /* the largest limit */
	WQ_UNBOUND_MAX_ACTIVE = WQ_MAX_ACTIVE, /* the largest limit with WQ_UNBOUND */
	WQ_DFL_ACTIVE = WQ_MAX_ACTIVE / 2, /* the limit if max_active is 0 */
	WORK_CPU_UNBOUND = -1, /* the CPU of the caller */
	WQ_NAME_LEN = 64,
	WORKER_DESC_LEN = 32,
	AW_WQ_ORDERED = 1 << 17
};

enum work_busy_flags {
	WORK_BUSY_PENDING = 1 << 0,
	WORK_BUSY_RUNNING = 1 << 1
};

/* afterwork_hook_t - a hook that worker threads call when they start or end. */
typedef void (*afterwork_hook_t)(void);

/* The library's own symbols, which are documented at the functions below that call them. */
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
 * alloc_workqueue - create a queue
 * @fmt: its name, as for printf; cut off after WQ_NAME_LEN bytes
 * @flags: values of enum wq_flags
 * @max_active: the number of items that may run at once, on each CPU or, with WQ_UNBOUND, in the
 *   process (in the kernel: on each NUMA node); 0 for the default. Values above WQ_MAX_ACTIVE mean
 *   WQ_MAX_ACTIVE
 *
 * Without WQ_UNBOUND, an item runs on the CPU on which it was queued. Returns NULL if flags
 * contradict each other or are unknown, if @max_active is negative, or if no memory or thread is
 * available. If the environment variable AFTERWORK is invalid, reports misuse and returns NULL. May
 * sleep.
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
 * alloc_ordered_workqueue - create a queue whose items run one at a time, in queueing order
 * @fmt: its name, as for printf, with the arguments after @flags
 * @flags: values of enum wq_flags; only WQ_MEM_RECLAIM has an effect
 *
 * Otherwise like alloc_workqueue.
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
 * destroy_workqueue - run all items of a queue, and destroy it
 * @wq: the queue, which is no longer used; NULL is ignored
 *
 * Cancels armed timers: their items do not run, and become idle. Waits until the last item has
 * ended. If an item of the queue calls this, it would deadlock, so the process ends with a message,
 * in any build.
 */
static inline void destroy_workqueue(struct workqueue_struct *wq)
{
	aw_destroy_workqueue(wq);
}

/**
 * flush_workqueue - wait for all items that were queued before this call
 * @wq: the queue
 *
 * In one of the queue's own items this is misuse, and returns at once.
 */
static inline void flush_workqueue(struct workqueue_struct *wq)
{
	aw_flush_workqueue(wq);
}

/**
 * drain_workqueue - wait until a queue is empty
 * @wq: the queue
 *
 * During the wait, only the queue's own items may queue items to it. A call from one of the queue's
 * own items is misuse, and returns at once.
 */
static inline void drain_workqueue(struct workqueue_struct *wq)
{
	aw_drain_workqueue(wq);
}

/**
 * workqueue_set_max_active - change the number of items of a queue that may run at once
 * @wq: the queue
 * @max_active: 1 to WQ_MAX_ACTIVE; larger values mean WQ_MAX_ACTIVE. Must be 1 for an ordered queue
 *
 * Any other value is misuse, and changes nothing. Differs from Linux: this returns 0 or -EINVAL.
 */
static inline int workqueue_set_max_active(struct workqueue_struct *wq, int max_active)
{
	return aw_workqueue_set_max_active(wq, max_active);
}

/**
 * apply_workqueue_attrs - change where the workers of a queue run
 * @wq: the queue
 * @attrs: the attributes, which the caller keeps
 *
 * Applies to items that are queued later. Returns 0 on success. Otherwise nothing changes, and the
 * result is -EINVAL for invalid attributes or a queue with WQ_BH, -EPERM for a nice value that the
 * process may not set, or -EBUSY if an item of an ordered queue calls this for its own queue,
 * because this drains an ordered queue first. Passing a system queue is misuse, and returns
 * -EINVAL. May sleep.
 */
static inline int apply_workqueue_attrs(struct workqueue_struct *wq, const struct workqueue_attrs *attrs)
{
	return aw_apply_workqueue_attrs(wq, attrs);
}

#define create_freezable_workqueue(name) alloc_workqueue("%s", WQ_FREEZABLE | WQ_UNBOUND | WQ_MEM_RECLAIM, 1, (name))

/*
 * The process-wide queues. They are built on first use, even in a child of fork. A program must not
 * flush, drain, destroy or replace them. The last three are the same as system_wq or
 * system_unbound_wq.
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
 * Returns true if this call makes the item run once. Returns false if the item is already pending
 * or is disabled, or if @wq is being drained and the caller is not one of its items. The run sees
 * all earlier writes of the caller, even if this call returns false because the item is pending. A
 * running item may be queued, and then runs again afterwards. The item must stay valid until its
 * function has been called, or until it has been cancelled or flushed. Misuse returns false.
 *
 * Never waits for a worker or for memory. Must not be called in signal handlers.
 */
static inline bool queue_work(struct workqueue_struct *wq, struct work_struct *work)
{
	return aw_queue_work(WORK_CPU_UNBOUND, wq, work);
}

/**
 * queue_work_on - queue an item on a CPU
 * @cpu: its number; negative for the caller's. Replaced by another one if the queue may not use it
 * @wq: the queue
 * @work: the item
 *
 * Otherwise like queue_work.
 */
static inline bool queue_work_on(int cpu, struct workqueue_struct *wq, struct work_struct *work)
{
	return aw_queue_work(cpu, wq, work);
}

/**
 * queue_work_node - queue an item on a NUMA node
 * @node: its number; negative for the caller's. Replaced by another one if the queue may not use it
 * @wq: the queue
 * @work: the item
 *
 * Otherwise like queue_work.
 */
static inline bool queue_work_node(int node, struct workqueue_struct *wq, struct work_struct *work)
{
	return aw_queue_work_node(node, wq, work);
}

/**
 * queue_rcu_work - queue an item after a grace period of RCU
 * @wq: the queue; its destruction waits for the grace period
 * @rwork: the item
 *
 * Returns true if this call makes the item run after all current sections have ended. Returns false
 * in the same cases as queue_work. Until the grace period is over, the item cannot be cancelled,
 * but disable_work prevents it from being queued. Its memory may be freed only after
 * flush_rcu_work. Never waits or allocates.
 */
static inline bool queue_rcu_work(struct workqueue_struct *wq, struct rcu_work *rwork)
{
	return aw_queue_rcu_work(wq, rwork);
}

/*
 * flush_rcu_work - flush_work that also waits for the grace period. Must not be called inside a
 * section of RCU.
 */
static inline bool flush_rcu_work(struct rcu_work *rwork)
{
	return aw_flush_rcu_work(rwork);
}

/**
 * schedule_on_each_cpu - run a function on each CPU that the process may use, and wait for all
 * @func: the function
 *
 * Uses system_wq. Returns 0 or -ENOMEM. Differs from Linux: this leaves out isolated CPUs, and CPUs
 * that the process may not use.
 */
static inline int schedule_on_each_cpu(work_func_t func)
{
	return aw_schedule_on_each_cpu(func);
}

/* schedule_work - queue_work with system_wq. */
static inline bool schedule_work(struct work_struct *work)
{
	return queue_work(system_wq, work);
}

/* schedule_work_on - queue_work_on with system_wq. */
static inline bool schedule_work_on(int cpu, struct work_struct *work)
{
	return queue_work_on(cpu, system_wq, work);
}

/**
 * flush_work - wait until an item is idle, which includes the runs of all earlier enqueues
 * @work: the item
 *
 * Returns true if it had to wait. The caller then sees all effects of the item's function. Does not
 * wait for an armed timer. If the queue has WQ_UNBOUND and is not ordered, and no worker has taken
 * the item yet, the calling thread runs the item itself. An item that flushes another item of its
 * own queue may still deadlock if the queue is at its limit (max_active), as in the kernel: a
 * worker that has taken the other item waits for the caller to end. An item that flushes itself is
 * misuse. Misuse returns false.
 */
static inline bool flush_work(struct work_struct *work)
{
	return aw_flush_work(work);
}

/**
 * cancel_work - remove an item from its queue
 * @work: the item
 *
 * Returns true if the item was pending. It will not run again, but may still be running. Visits the
 * items that were queued before it.
 */
static inline bool cancel_work(struct work_struct *work)
{
	return aw_cancel_work(work);
}

/**
 * cancel_work_sync - remove an item from its queue, and wait until it does not run
 * @work: the item
 *
 * Returns true if the item was pending. On return the item is idle, and its memory may be freed.
 * During the wait it cannot be queued, not even by itself. Inside the item's own run this does not
 * wait, whereas on Linux it never returns.
 */
static inline bool cancel_work_sync(struct work_struct *work)
{
	return aw_cancel_work_sync(work);
}

/**
 * disable_work - prevent an item from being queued, and cancel it
 * @work: the item
 *
 * The item stays disabled until enable_work has been called as often as disable_work. Returns true
 * if the item was pending. More than 65535 calls without an enable_work are misuse.
 */
static inline bool disable_work(struct work_struct *work)
{
	return aw_disable_work(work);
}

/* disable_work_sync - disable_work, and then wait like cancel_work_sync. */
static inline bool disable_work_sync(struct work_struct *work)
{
	return aw_disable_work_sync(work);
}

/**
 * enable_work - undo one disable_work
 * @work: the item
 *
 * Returns true if the item may be queued again. If the item was not disabled, this is misuse, and
 * returns false.
 */
static inline bool enable_work(struct work_struct *work)
{
	return aw_enable_work(work);
}

/*
 * enable_and_queue_work - enable_work, and queue_work if the item may be queued. Returns true if
 * this call queued the item.
 */
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
 * @cpu: as in queue_work_on
 * @func: the function
 * @arg: its argument
 *
 * Uses system_wq. Returns the result of @func.
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

/* work_busy - return the states of an item, as enum work_busy_flags. The result may be outdated. */
static inline unsigned int work_busy(struct work_struct *work)
{
	return aw_work_busy(work);
}

/* work_pending - whether an item or its timer is pending. The result may be outdated. */
static inline bool work_pending(struct work_struct *work)
{
	return (work_busy(work) & WORK_BUSY_PENDING) != 0;
}

/* The bit of an item's state that is set while the item or its timer is pending. */
enum {
	WORK_STRUCT_PENDING_BIT = 0,
	WORK_STRUCT_PENDING = 1 << WORK_STRUCT_PENDING_BIT
};

/*
 * work_data_bits - the word that contains this bit. It must only be read, because the library
 * changes it atomically.
 */
#define work_data_bits(work) (&(work)->aw_data)

/* current_work - return the item that the caller runs, or NULL. The item may have been freed. */
static inline struct work_struct *current_work(void)
{
	return aw_current_work();
}

/**
 * set_worker_desc - describe the running item in the name of its thread
 * @fmt: a few words, as for printf
 *
 * The words are appended to the thread's name until the item ends. The kernel keeps only 15 bytes
 * of a name. Outside an item this does nothing.
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
 * afterwork_on_worker_start - set a function that worker threads call before their first item
 * @hook: the function; NULL for none
 *
 * Threads that start later call the hook. To reach all threads, set it before creating the first
 * queue. Returns the previous hook. A hook that extends the previous one must call it. The kernel
 * has no such function.
 */
static inline afterwork_hook_t afterwork_on_worker_start(afterwork_hook_t hook)
{
	return aw_on_worker_start(hook);
}

/**
 * afterwork_on_worker_stop - set a function that worker threads call after their last item
 * @hook: the function; NULL for none
 *
 * Otherwise like afterwork_on_worker_start. Threads end after they have been idle for a long time,
 * but not at process exit.
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
 * @delay: in jiffies, which are milliseconds; 0 means at once
 *
 * Returns true if this call makes the item run. Returns false in the same cases as queue_work, and
 * if the timer is already armed. The item is never queued before the delay has passed. The first
 * call in a process starts a thread for timers. If that fails, the process ends with an error
 * message.
 */
static inline bool queue_delayed_work(struct workqueue_struct *wq, struct delayed_work *dwork, unsigned long delay)
{
	return aw_queue_delayed_work(WORK_CPU_UNBOUND, wq, dwork, delay);
}

/* queue_delayed_work_on - queue_delayed_work on a CPU, as in queue_work_on. */
static inline bool queue_delayed_work_on(int cpu, struct workqueue_struct *wq, struct delayed_work *dwork,
					 unsigned long delay)
{
	return aw_queue_delayed_work(cpu, wq, dwork, delay);
}

/**
 * mod_delayed_work - queue an item after a delay from now, whether it is pending or not
 * @wq: the queue
 * @dwork: the item
 * @delay: in jiffies; 0 means at once
 *
 * Returns true if the item was pending. It then stays pending during the whole call, so other
 * threads cannot queue it in between. A disabled item is cancelled.
 */
static inline bool mod_delayed_work(struct workqueue_struct *wq, struct delayed_work *dwork, unsigned long delay)
{
	return aw_mod_delayed_work(WORK_CPU_UNBOUND, wq, dwork, delay);
}

/* mod_delayed_work_on - mod_delayed_work on a CPU, as in queue_work_on. */
static inline bool mod_delayed_work_on(int cpu, struct workqueue_struct *wq, struct delayed_work *dwork,
				       unsigned long delay)
{
	return aw_mod_delayed_work(cpu, wq, dwork, delay);
}

/* schedule_delayed_work - queue_delayed_work with system_wq. */
static inline bool schedule_delayed_work(struct delayed_work *dwork, unsigned long delay)
{
	return queue_delayed_work(system_wq, dwork, delay);
}

/* schedule_delayed_work_on - queue_delayed_work_on with system_wq. */
static inline bool schedule_delayed_work_on(int cpu, struct delayed_work *dwork, unsigned long delay)
{
	return queue_delayed_work_on(cpu, system_wq, dwork, delay);
}

/*
 * flush_delayed_work - queue an item at once if its timer is armed, and then wait like flush_work.
 */
static inline bool flush_delayed_work(struct delayed_work *dwork)
{
	return aw_flush_delayed_work(dwork);
}

/* cancel_delayed_work - cancel_work that also stops the timer. */
static inline bool cancel_delayed_work(struct delayed_work *dwork)
{
	return aw_cancel_delayed_work(dwork);
}

/* cancel_delayed_work_sync - cancel_work_sync that also stops the timer. */
static inline bool cancel_delayed_work_sync(struct delayed_work *dwork)
{
	return aw_cancel_delayed_work_sync(dwork);
}

/* disable_delayed_work - disable_work that also stops the timer. */
static inline bool disable_delayed_work(struct delayed_work *dwork)
{
	return aw_disable_delayed_work(dwork);
}

/* disable_delayed_work_sync - disable_work_sync that also stops the timer. */
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
 * afterwork_blocking - call a function that may sleep without the library's knowledge, such as on a
 * file or a lock
 * @func: the function
 * @data: its argument
 *
 * Inside an item, this lets another worker run during the call. Elsewhere it only calls @func. The
 * kernel has no such function, because its scheduler notices the sleep at once. Without this call,
 * the library notices the sleep only a few milliseconds later. Returns the result of @func.
 */
static inline long afterwork_blocking(long (*func)(void *data), void *data)
{
	return aw_blocking(func, data);
}

#ifdef __cplusplus
}
#endif

#endif
