/*
 * Makes allocations and thread creations fail, using the linker's --wrap, and checks how a walk
 * ends. If the failed call can report an error, the walk must complete. Otherwise it must abort
 * with one clear line. It must never hang, corrupt memory, or end silently.
 */
#define _GNU_SOURCE
#include "refuse.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

static long nth_memory, nth_thread;
static bool refuses_later_threads;
static long nr_memory, nr_threads;

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
void *own_malloc(size_t size);
void *own_calloc(size_t nr, size_t size);
int own_pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*func)(void *), void *arg);

static bool is_refused(void)
{
	return __atomic_add_fetch(&nr_memory, 1, __ATOMIC_RELAXED) == nth_memory;
}

void *__wrap_malloc(size_t size)
{
	return is_refused() ? NULL : __real_malloc(size);
}

void *__wrap_calloc(size_t nr, size_t size)
{
	return is_refused() ? NULL : __real_calloc(nr, size);
}

void *__wrap_realloc(void *memory, size_t size)
{
	return is_refused() ? NULL : __real_realloc(memory, size);
}

int __wrap_posix_memalign(void **memory, size_t align, size_t size)
{
	return is_refused() ? ENOMEM : __real_posix_memalign(memory, align, size);
}

int __wrap_pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*func)(void *), void *arg)
{
	long nth = __atomic_add_fetch(&nr_threads, 1, __ATOMIC_RELAXED);
	bool is_one = nth == nth_thread || (refuses_later_threads && nth_thread && nth > nth_thread);

	return is_one ? EAGAIN : __real_pthread_create(thread, attr, func, arg);
}

/* The allocations of the walks themselves do not fail. */
void *own_malloc(size_t size)
{
	return __real_malloc(size);
}

void *own_calloc(size_t nr, size_t size)
{
	return __real_calloc(nr, size);
}

int own_pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*func)(void *), void *arg)
{
	return __real_pthread_create(thread, attr, func, arg);
}

/* ---- children, several at a time, because most of them wait for timers ---- */

#define NR_AT_ONCE 6
#define NR_COUNTS "walk of "

static struct walk {
	const char *name;
	long memory, thread;
	bool threads;
	pid_t pid;
	int from;
} walks[NR_AT_ONCE];
static long last_memory, last_threads;
static int nr_bad, nr_whole, nr_reported;

_Noreturn void end_of_walk(void)
{
	fprintf(stderr, NR_COUNTS "%ld %ld\n", __atomic_load_n(&nr_memory, __ATOMIC_RELAXED),
		__atomic_load_n(&nr_threads, __ATOMIC_RELAXED));
	_exit(0);
}

static void judge(const struct walk *walk, int status, const char *said)
{
	const char *counts = strstr(said, NR_COUNTS);
	/*
	 * If a case starts a child of its own and fails with it, only the line or the counts of
	 * that child may remain.
	 */
	bool is_reported = (WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT && strchr(said, '\n')) ||
		       (status != 0 && WIFEXITED(status) && (counts || strstr(said, "memory allocation of")));

	if (status == 0) {
		nr_whole++;
		if (counts)
			(void)sscanf(counts, NR_COUNTS "%ld %ld", &last_memory, &last_threads);
	} else if (is_reported) {
		nr_reported++;
	} else {
		nr_bad++;
		printf("FAILED %s with allocation %ld, thread %ld%s refused: %#x: %s\n", walk->name, walk->memory, walk->thread,
		       walk->threads ? " and later ones" : "", (unsigned int)status, said);
	}
}

static void reap(void)
{
	char said[4096];
	size_t len = 0;
	ssize_t got;
	int status = 0;
	pid_t pid = waitpid(-1, &status, 0);

	for (int i = 0; i < NR_AT_ONCE; i++) {
		struct walk *walk = &walks[i];

		if (walk->pid != pid)
			continue;
		/* A child of the walk may still hold the pipe open. */
		fcntl(walk->from, F_SETFL, O_NONBLOCK);
		while (len < sizeof(said) - 1 && (got = read(walk->from, said + len, sizeof(said) - 1 - len)) > 0)
			len += (size_t)got;
		said[len] = 0;
		close(walk->from);
		walk->pid = 0;
		judge(walk, status, said);
	}
}

static struct walk *free_walk(void)
{
	for (int i = 0; i < NR_AT_ONCE; i++)
		if (walks[i].pid == 0)
			return &walks[i];
	return NULL;
}

void walk_in_child(const char *name, void (*body)(void), long memory, long thread, bool threads)
{
	struct walk *walk;
	int fds[2];

	while (!(walk = free_walk()))
		reap();
	fflush(stdout);
	if (pipe(fds) != 0)
		exit(2);
	*walk = (struct walk){ name, memory, thread, threads, fork(), fds[0] };
	if (walk->pid == 0) {
		const struct rlimit no_core = { 0, 0 };

		setrlimit(RLIMIT_CORE, &no_core);
		dup2(fds[1], 2);
		close(fds[0]);
		close(fds[1]);
		/* A backtrace would not fit into the buffer. */
		setenv("RUST_BACKTRACE", "0", 1);
		alarm(60);
		nth_memory = memory;
		nth_thread = thread;
		refuses_later_threads = threads;
		nr_memory = nr_threads = 0;
		body();
		end_of_walk();
	}
	close(fds[1]);
}

void wait_for_walks(long *memory, long *threads)
{
	for (int i = 0; i < NR_AT_ONCE; i++)
		while (walks[i].pid != 0)
			reap();
	*memory = last_memory;
	*threads = last_threads;
}

int report_walks(void)
{
	long unused;

	wait_for_walks(&unused, &unused);
	printf("%d walks went on, %d told and aborted, %d failed\n", nr_whole, nr_reported, nr_bad);
	return nr_bad != 0;
}
