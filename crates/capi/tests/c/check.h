/* The framework of the tests in C. */
#ifndef CHECK_H
#define CHECK_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif

#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef REFUSES
/*
 * `apart/refused.c` makes only the library's allocations fail. The tests use the first three
 * functions below, which do not fail. The other three end the case if the library reports that
 * there is no memory.
 */
void *own_malloc(size_t size);
void *own_calloc(size_t nr, size_t size);
int own_pthread_create(pthread_t *thread, const pthread_attr_t *attr, void *(*func)(void *), void *arg);
#define malloc own_malloc
#define calloc own_calloc
#define pthread_create own_pthread_create
#define aw_alloc_percpu own_alloc_percpu
#define aw_alloc_workqueue own_alloc_workqueue
#define aw_schedule_on_each_cpu own_schedule_on_each_cpu
/* If no worker thread can be created, an item may run in a rescuer, at nice 0. */
enum { may_be_rescued = true };
#else
enum { may_be_rescued = false };
#endif

struct test {
	const char *name;
	void (*run)(void);
};

extern const struct test workqueue_tests[], delayed_tests[], rcu_tests[], srcu_tests[], percpu_tests[];
extern const struct test task_work_tests[], names_tests[], misuse_tests[], rules_tests[];

/* Records a failed check of the current case. */
extern int nr_failed_checks;
void failed(const char *file, int line, const char *what);

/*
 * Runs this program again as the misuse NAME. Returns true if it reported LINE and ended as
 * expected. If ENDS is true, the misuse must abort the program in every build, otherwise only in
 * debug builds.
 */
bool misuse_is_reported(const char *name, const char *line, bool ends);
/* Runs the misuse NAME, in a program that misuse_is_reported started. */
int run_misuse(const char *name);

#define CHECK(cond) ((cond) ? (void)0 : failed(__FILE__, __LINE__, #cond))
#define CHECK_EQ(one, other)                                                                         \
	do {                                                                                         \
		long one_ = (long)(one), other_ = (long)(other);                                     \
		if (one_ != other_) {                                                                \
			char text_[200];                                                             \
			(void)snprintf(text_, sizeof(text_), "%s is %ld, not %ld", #one, one_, other_); \
			failed(__FILE__, __LINE__, text_);                                           \
		}                                                                                    \
	} while (0)

/* A gate, which opens once for each post. */
static inline void gate_init(sem_t *gate)
{
	sem_init(gate, 0, 0);
}

static inline void gate_wait(sem_t *gate)
{
	while (sem_wait(gate) != 0)
		;
}

#endif
