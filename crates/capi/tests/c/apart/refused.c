/*
 * Runs the cases of the suite with failing allocations and thread creations. `refused SEED` makes a
 * random selection of each case's first thousand fail, and `refused all` makes each of them fail.
 * Allocations of the case itself do not fail (check.h). If a call reports that there is no memory,
 * the case ends.
 */
#include "../check.h"

#include "refuse.h"

#include <afterwork/percpu.h>

#include <errno.h>

int nr_failed_checks;
static const struct test *present;

void failed(const char *file, int line, const char *what)
{
	fprintf(stderr, "    %s:%d: %s\n", file, line, what);
	__atomic_fetch_add(&nr_failed_checks, 1, __ATOMIC_RELAXED);
}

/* The symbols of the library, which check.h renames. */
#undef aw_alloc_percpu
#undef aw_alloc_workqueue
#undef aw_schedule_on_each_cpu
void *aw_alloc_percpu(size_t size, size_t align);
struct workqueue_struct *aw_alloc_workqueue(const char *name, unsigned int flags, int max_active);
int aw_schedule_on_each_cpu(work_func_t func);

static bool is_refusing;

void *own_alloc_percpu(size_t size, size_t align)
{
	void *data = aw_alloc_percpu(size, align);

	if (!data && is_refusing)
		end_of_walk();
	return data;
}

struct workqueue_struct *own_alloc_workqueue(const char *name, unsigned int flags, int max_active)
{
	struct workqueue_struct *wq = aw_alloc_workqueue(name, flags, max_active);

	if (!wq && is_refusing)
		end_of_walk();
	return wq;
}

int own_schedule_on_each_cpu(work_func_t func)
{
	int answer = aw_schedule_on_each_cpu(func);

	if (answer == -ENOMEM)
		end_of_walk();
	return answer;
}

static void run(void)
{
	present->run();
	if (nr_failed_checks)
		exit(1);
}

int main(int argc, char **argv)
{
	const struct test *const tables[] = { workqueue_tests, delayed_tests, rcu_tests, srcu_tests, percpu_tests, task_work_tests,
					      names_tests, rules_tests };
	bool all = argc > 1 && strcmp(argv[1], "all") == 0;
	unsigned int dice = argc > 1 ? (unsigned int)strtoul(argv[1], NULL, 0) : 1;
	int nr_cases = 0;

	for (size_t i = 0; i < sizeof(tables) / sizeof(tables[0]); i++) {
		for (present = tables[i]; present->name; present++) {
			long memory = 0, threads = 0;

			if (argc > 2 && !strstr(present->name, argv[2]))
				continue;
			nr_cases++;
			is_refusing = false;
			walk_in_child(present->name, run, 0, 0, false);
			wait_for_walks(&memory, &threads);
			is_refusing = true;
			for (long nth = 1, range = 1; nth <= memory && nth <= 1000; range *= 3) {
				walk_in_child(present->name, run, nth, 0, false);
				dice = dice * 1103515245u + 12345u;
				nth = all ? nth + 1 : 1 + range + (long)(dice >> 8) % (2 * range);
			}
			for (long nth = 1; nth <= threads && nth <= 20; nth++)
				if (all || nth == 1 + (long)(dice >> 16) % threads)
					walk_in_child(present->name, run, 0, nth, false);
		}
	}
	printf("%d cases, seed %s: ", nr_cases, argc > 1 ? argv[1] : "1");
	return report_walks();
}
