/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Task work (callbacks for one thread) with the kernel's names, implemented by afterwork.
 *
 * In the kernel a task calls its callbacks before it returns to user space. A thread has no such
 * moment, so it chooses one itself: it calls task_work_run in its loop. When the thread ends, the
 * library calls the remaining callbacks. The caller provides the memory of a callback. The library
 * allocates only a task_struct for each thread that requests its own.
 *
 * workqueue.h describes how misuse is reported. Misuse in this header means NULL, a callback that
 * is not initialized, and one that was already added.
 */
#ifndef AFTERWORK_TASK_WORK_H
#define AFTERWORK_TASK_WORK_H

#include <stdbool.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* struct task_struct - a thread, as seen by other threads. */
struct task_struct;
struct callback_head;

/* task_work_func_t - the function of a callback, which may free the callback or add it again. */
typedef void (*task_work_func_t)(struct callback_head *work);

/**
 * struct callback_head - a callback
 *
 * It is part of the caller's structure, and is initialized by init_task_work. The library owns it
 * from the call of task_work_add until it is called or cancelled.
 */
struct callback_head {
	void *aw_private[2];
	task_work_func_t func;
};

#ifdef __cplusplus
static_assert(sizeof(struct callback_head) == 24, "a callback_head has 24 bytes");
#else
_Static_assert(sizeof(struct callback_head) == 24, "a callback_head has 24 bytes");
#endif

enum task_work_notify_mode {
	TWA_NONE = 0,   /* the thread is not notified */
	TWA_RESUME = 1, /* ends its afterwork_task_work_wait */
	TWA_SIGNAL = 2  /* the same as TWA_RESUME: no system call is interrupted */
};

/* The library's own symbols, which are documented at the functions below that call them. */
struct task_struct *aw_get_current(void);
struct task_struct *aw_get_task_struct(struct task_struct *task);
void aw_put_task_struct(struct task_struct *task);
int aw_task_work_add(struct task_struct *task, struct callback_head *work, int notify);
bool aw_task_work_cancel(struct task_struct *task, struct callback_head *work);
struct callback_head *aw_task_work_cancel_func(struct task_struct *task, task_work_func_t func);
void aw_task_work_run(void);
bool aw_task_work_pending(void);
bool aw_task_work_wait(long timeout_ms);

/**
 * get_current - return the caller's own task_struct
 *
 * The task_struct is valid until the thread ends. A thread that has called get_task_struct may use
 * it until it calls put_task_struct. The first call on a thread allocates memory. Returns NULL when
 * the thread is about to end. A child of fork gets a different task_struct. Code that uses
 * `current` must define that macro.
 */
static inline struct task_struct *get_current(void)
{
	return aw_get_current();
}

/* get_task_struct - acquire a reference to a task_struct, and return the task_struct. */
static inline struct task_struct *get_task_struct(struct task_struct *task)
{
	return aw_get_task_struct(task);
}

/* put_task_struct - release a reference. */
static inline void put_task_struct(struct task_struct *task)
{
	aw_put_task_struct(task);
}

/* init_task_work - initialize a callback that calls FUNC. The callback must not be on a list. */
static inline void init_task_work(struct callback_head *work, task_work_func_t func)
{
	work->aw_private[0] = NULL;
	work->aw_private[1] = NULL;
	work->func = func;
}

/**
 * task_work_add - add a callback to be called by a thread
 * @task: the thread
 * @work: the callback
 * @notify: whether to end the thread's wait
 *
 * Returns 0 if the callback will be called once, unless it is cancelled. Returns -ESRCH if the
 * thread has ended or belongs to the parent process. Misuse returns -EINVAL. Never waits. Must not
 * be called in signal handlers. Callbacks are called in the order in which they were added. Linux
 * does not document an order.
 */
static inline int task_work_add(struct task_struct *task, struct callback_head *work,
				enum task_work_notify_mode notify)
{
	return aw_task_work_add(task, work, (int)notify);
}

/**
 * task_work_cancel - cancel a callback
 * @task: the thread
 * @work: the callback
 *
 * Returns true if the callback will not be called and belongs to the caller again. Returns false if
 * the callback is being called, was called, or was not added. Visits all callbacks before it on the
 * list.
 */
static inline bool task_work_cancel(struct task_struct *task, struct callback_head *work)
{
	return aw_task_work_cancel(task, work);
}

/* task_work_cancel_func - cancel the oldest callback with FUNC. Returns the callback, or NULL. */
static inline struct callback_head *task_work_cancel_func(struct task_struct *task, task_work_func_t func)
{
	return aw_task_work_cancel_func(task, func);
}

/**
 * task_work_run - call all callbacks of this thread, including those that the calls add
 *
 * A callback may add itself again. This function does not return before the callback stops doing
 * so. If a C++ exception leaves a callback, or a callback returns with a different number of open
 * read-side critical sections than it started with, the process ends.
 */
static inline void task_work_run(void)
{
	aw_task_work_run();
}

/* task_work_pending - whether this thread has callbacks. */
static inline bool task_work_pending(void)
{
	return aw_task_work_pending();
}

/**
 * afterwork_task_work_wait - wait until this thread has callbacks
 * @timeout_ms: the maximum wait in milliseconds; negative for no limit
 *
 * Returns true if the thread has callbacks. A callback that was added with TWA_NONE ends the wait
 * only if it was added before this call. The kernel needs no such function, because it interrupts
 * tasks.
 */
static inline bool afterwork_task_work_wait(long timeout_ms)
{
	return aw_task_work_wait(timeout_ms);
}

#ifdef __cplusplus
}
#endif

#endif
