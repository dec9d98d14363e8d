/*
 * Memory and threads that cannot be had: one walk through all that allocates, again and again, of which the nth allocation, or the
 * nth thread, is refused.
 *
 * Each walk is a child of its own, and has a defined end: it goes to its end where a call could say that there is no memory, or one
 * clear line and abort. It never hangs, corrupts memory, or ends without a word.
 */
#define _GNU_SOURCE
#include <afterwork/percpu.h>
#include <afterwork/rcupdate.h>
#include <afterwork/srcu.h>
#include <afterwork/task_work.h>
#include <afterwork/workqueue.h>

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

/* Which is refused; 0 for none. */
static long nth_memory, nth_thread;
static long nr_memory, nr_threads;

static bool is_refused(long *nr, long nth)
{
	return __atomic_add_fetch(nr, 1, __ATOMIC_RELAXED) == nth;
}

void *__real_malloc(size_t size);
void *__real_calloc(size_t nr, size_t size);
void *__real_realloc(void *memory, size_t size);
int __real_posix_memalign(void **memory, size_t align, size_t size);
int __real_pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*func)(void *), void *arg);
void *__wrap_malloc(size_t size);
void *__wrap_calloc(size_t nr, size_t size);
void *__wrap_realloc(void *memory, size_t size);
int __wrap_posix_memalign(void **memory, size_t align, size_t size);
int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*func)(void *), void *arg);

void *__wrap_malloc(size_t size)
{
	return is_refused(&nr_memory, nth_memory) ? NULL : __real_malloc(size);
}

void *__wrap_calloc(size_t nr, size_t size)
{
	return is_refused(&nr_memory, nth_memory) ? NULL : __real_calloc(nr, size);
}

void *__wrap_realloc(void *memory, size_t size)
{
	return is_refused(&nr_memory, nth_memory) ? NULL : __real_realloc(memory, size);
}

int __wrap_posix_memalign(void **memory, size_t align, size_t size)
{
	return is_refused(&nr_memory, nth_memory) ? ENOMEM : __real_posix_memalign(memory, align, size);
}

int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*func)(void *), void *arg)
{
	return is_refused(&nr_threads, nth_thread) ? EAGAIN : __real_pthread_create(thread, attr, func, arg);
}

/* ---- the walk ---- */

static void count(struct work_struct *work)
{
	(void)work;
}

static void call(struct rcu_head *head)
{
	(void)head;
}

static void call_task(struct callback_head *work)
{
	(void)work;
}

static void use(struct workqueue_struct *wq)
{
	struct workqueue_attrs *attrs = alloc_workqueue_attrs();
	struct delayed_work dwork;
	struct work_struct work;
	struct rcu_work rwork;

	INIT_WORK(&work, count);
	INIT_DELAYED_WORK(&dwork, count);
	INIT_RCU_WORK(&rwork, count);
	queue_work(wq, &work);
	flush_work(&work);
	queue_work(wq, &work);
	cancel_work_sync(&work);
	queue_delayed_work(wq, &dwork, 1);
	flush_delayed_work(&dwork);
	mod_delayed_work(wq, &dwork, 1000 * HZ);
	cancel_delayed_work_sync(&dwork);
	queue_rcu_work(wq, &rwork);
	flush_rcu_work(&rwork);
	if (attrs)
		(void)apply_workqueue_attrs(wq, attrs);
	free_workqueue_attrs(attrs);
	drain_workqueue(wq);
	destroy_workqueue(wq);
}

static void walk(void)
{
	static const unsigned int flags[] = { WQ_UNBOUND, WQ_PERCPU, WQ_UNBOUND | WQ_MEM_RECLAIM, WQ_HIGHPRI };
	struct workqueue_struct *ordered;
	struct srcu_struct domain;
	struct rcu_head head;
	struct callback_head task_work;
	struct task_struct *task;
	long *data;

	for (size_t i = 0; i < sizeof(flags) / sizeof(flags[0]); i++) {
		struct workqueue_struct *wq = alloc_workqueue("walk", flags[i], 2);

		if (wq)
			use(wq);
	}
	ordered = alloc_ordered_workqueue("walk", 0);
	if (ordered)
		use(ordered);
	(void)schedule_on_each_cpu(count);
	rcu_read_lock();
	rcu_read_unlock();
	synchronize_rcu();
	call_rcu(&head, call);
	rcu_barrier();
	if (init_srcu_struct(&domain) == 0) {
		srcu_read_unlock(&domain, srcu_read_lock(&domain));
		synchronize_srcu(&domain);
		call_srcu(&domain, &head, call);
		srcu_barrier(&domain);
		cleanup_srcu_struct(&domain);
	}
	data = alloc_percpu(long);
	if (data)
		this_cpu_inc(data);
	free_percpu(data);
	task = get_current();
	init_task_work(&task_work, call_task);
	if (task && task_work_add(task, &task_work, TWA_NONE) == 0)
		task_work_run();
}

/* ---- what becomes of it ---- */

static char said[4096];

/* Walks in a child; returns how it ended, with what it said in `said`. */
static int walk_in_child(long memory, long thread)
{
	int fds[2], status = 0;
	size_t len = 0;
	ssize_t got;
	pid_t child;

	if (pipe(fds) != 0)
		exit(2);
	child = fork();
	if (child == 0) {
		const struct rlimit no_core = { 0, 0 };

		setrlimit(RLIMIT_CORE, &no_core);
		dup2(fds[1], 2);
		close(fds[0]);
		close(fds[1]);
		/* A trace is longer than what is read here. */
		setenv("RUST_BACKTRACE", "0", 1);
		alarm(60);
		nth_memory = memory;
		nth_thread = thread;
		walk();
		/* How many there were. */
		fprintf(stderr, "%ld %ld", nr_memory, nr_threads);
		_exit(0);
	}
	close(fds[1]);
	while (len < sizeof(said) - 1 && (got = read(fds[0], said + len, sizeof(said) - 1 - len)) > 0)
		len += (size_t)got;
	said[len] = 0;
	close(fds[0]);
	waitpid(child, &status, 0);
	return status;
}

static int nr_bad, nr_whole, nr_told;

static void refuse(const char *what, long nth, int status)
{
	bool is_told = WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT && strchr(said, '\n');

	if (status == 0) {
		nr_whole++;
	} else if (is_told) {
		nr_told++;
	} else {
		nr_bad++;
		printf("FAILED with %s %ld refused: %#x: %s\n", what, nth, (unsigned int)status, said);
	}
}

int main(int argc, char **argv)
{
	/* How far apart those are that are refused: 1 is each. */
	long step = argc > 1 ? atol(argv[1]) : 1, memory = 0, threads = 0;

	if (walk_in_child(0, 0) != 0 || sscanf(said, "%ld %ld", &memory, &threads) != 2) {
		printf("FAILED with nothing refused: %s\n", said);
		return 1;
	}
	for (long nth = 1; nth <= memory && nth <= 1000; nth += step)
		refuse("allocation", nth, walk_in_child(nth, 0));
	for (long nth = 1; nth <= threads; nth++)
		refuse("thread", nth, walk_in_child(0, nth));
	printf("of %ld allocations and %ld threads: %d walks went on, %d told and aborted, %d failed\n", memory, threads, nr_whole,
	       nr_told, nr_bad);
	return nr_bad != 0;
}
