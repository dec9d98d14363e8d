/* Runs all tests in C, or those whose name contains the argument. Prints the failures. */
#include "check.h"

#include <unistd.h>

int nr_failed_checks;

void failed(const char *file, int line, const char *what)
{
	__atomic_fetch_add(&nr_failed_checks, 1, __ATOMIC_RELAXED);
	fprintf(stderr, "    %s:%d: %s\n", file, line, what);
}

int main(int argc, char **argv)
{
	const struct test *const tables[] = {
		workqueue_tests, delayed_tests, rcu_tests, srcu_tests, percpu_tests, task_work_tests, names_tests, misuse_tests,
		rules_tests,
	};
	const char *part = argc > 1 ? argv[1] : "";
	int nr_run = 0, nr_bad = 0;

	if (argc > 2 && strcmp(part, "--misuse") == 0)
		return run_misuse(argv[2]);
	/* Ends a case that hangs. */
	alarm(300);
	for (size_t i = 0; i < sizeof(tables) / sizeof(tables[0]); i++) {
		for (const struct test *test = tables[i]; test->name; test++) {
			if (!strstr(test->name, part))
				continue;
			nr_failed_checks = 0;
			test->run();
			nr_run++;
			if (nr_failed_checks) {
				nr_bad++;
				printf("FAILED %s\n", test->name);
			}
		}
	}
	printf("%d cases, %d failed\n", nr_run, nr_bad);
	return nr_bad || !nr_run;
}
