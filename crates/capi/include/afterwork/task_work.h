/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Task work by the kernel's names, over the library afterwork: callbacks that one thread is to call.
 *
 * In the kernel a task calls them on its way back to user space. A thread has no such moment, so it says when: by task_work_run, in
 * its loop, and at its end, when the library calls what is left. What another thread adds lies in that one's memory: nothing is
 * allocated but a task_struct, once for each thread that asks for its own.
 *
 * What is told of misuse, and what that does, stands in workqueue.h; here it is NULL, a callback that is not initialised, and one
 * that was added already.
 */
#ifndef AFTERWORK_TASK_WORK_H
#define AFTERWORK_TASK_WORK_H

#include <stdbool.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

/* struct task_struct - a thread, as others know it. */
struct task_struct;
struct callback_head;

/* task_work_func_t - what is called: with the callback, which it may free, or add again. */
typedef void (*task_work_func_t)(struct callback_head *work);

/**
 * struct callback_head - a callback
 *
 * Part of the user's structure; laid out by init_task_work, and the library's from task_work_add until it is called or cancelled.
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
	TWA_NONE = 0,   /* lazily: the thread is not told */
	TWA_RESUME = 1, /* ends its afterwork_task_work_wait */
	TWA_SIGNAL = 2  /* as TWA_RESUME: no system call is interrupted */
};

/* The library's own symbols; their contracts stand at the names below. */
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
 * get_current - the caller's own task_struct
 *
 * There until the thread ends, and for whoever has called get_task_struct before that until put_task_struct. The first call of
 * a thread allocates. NULL at the thread's very end. A child of fork gets another one than the thread that forked had. Code that says
 * `current` has it by a macro of its own.
 */
static inline struct task_struct *get_current(void)
{
	return aw_get_current();
}

/* get_task_struct - keep a task_struct; returns it. */
static inline struct task_struct *get_task_struct(struct task_struct *task)
{
	return aw_get_task_struct(task);
}

/* put_task_struct - let go of it. */
static inline void put_task_struct(struct task_struct *task)
{
	aw_put_task_struct(task);
}

/* init_task_work - lay out a callback that calls FUNC; while it is not added. */
static inline void init_task_work(struct callback_head *work, task_work_func_t func)
{
	work->aw_private[0] = NULL;
	work->aw_private[1] = NULL;
	work->func = func;
}

/**
 * task_work_add - have a thread call a callback
 * @task: the thread
 * @work: the callback
 * @notify: whether it is told, if it waits
 *
 * Returns 0, and it is called once unless it is cancelled; -ESRCH when the thread has ended, or is one of this process's parent.
 * Misuse: -EINVAL. Never waits; not from signal handlers. Callbacks are called in the order in which they were added (Differs from
 * Linux, which does not say).
 */
static inline int task_work_add(struct task_struct *task, struct callback_head *work,
				enum task_work_notify_mode notify)
{
	return aw_task_work_add(task, work, (int)notify);
}

/**
 * task_work_cancel - take a callback back
 * @task: the thread
 * @work: the callback
 *
 * Returns true if it will not be called, and is the user's again; false when it is called, has been, or was not added. Looks at all
 * that are before it.
 */
static inline bool task_work_cancel(struct task_struct *task, struct callback_head *work)
{
	return aw_task_work_cancel(task, work);
}

/* task_work_cancel_func - take the oldest callback back that is to call FUNC; returns it, NULL for none. */
static inline struct callback_head *task_work_cancel_func(struct task_struct *task, task_work_func_t func)
{
	return aw_task_work_cancel_func(task, func);
}

/**
 * task_work_run - call all callbacks of this thread, with those that are added meanwhile
 *
 * One that is called may add itself again: then this does not return before it has stopped to. A C++ exception that leaves one ends
 * the process; so does one that returns in another read-side critical section than it was called in.
 */
static inline void task_work_run(void)
{
	aw_task_work_run();
}

/* task_work_pending - whether this thread has callbacks to call. */
static inline bool task_work_pending(void)
{
	return aw_task_work_pending();
}

/**
 * afterwork_task_work_wait - wait until this thread has callbacks to call
 * @timeout_ms: for at most so long; negative is for ever
 *
 * Returns whether it has. Those that were added by TWA_NONE are found when this begins, and do not end it. There is no such name in the
 * kernel, whose tasks are interrupted.
 */
static inline bool afterwork_task_work_wait(long timeout_ms)
{
	return aw_task_work_wait(timeout_ms);
}

#ifdef __cplusplus
}
#endif

#endif
