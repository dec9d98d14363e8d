/*
 * Opens the library at run time, and closes it while items are pending. The library stays mapped.
 */
#include <afterwork/workqueue.h>

#include <dlfcn.h>
#include <stdio.h>

static int nr_runs;

static void count(struct work_struct *work)
{
	(void)work;
	__atomic_add_fetch(&nr_runs, 1, __ATOMIC_RELAXED);
}

static void *find(void *library, const char *name)
{
	void *found = dlsym(library, name);

	if (!found) {
		printf("there is no %s\n", name);
		_Exit(1);
	}
	return found;
}

int main(int argc, char **argv)
{
	struct work_struct work, late;
	struct workqueue_struct *wq;

	if (argc < 2)
		return 2;
	INIT_WORK(&work, count);
	INIT_WORK(&late, count);
	for (int round = 1; round <= 3; round++) {
		void *library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
		__typeof__(&aw_alloc_workqueue) alloc;
		__typeof__(&aw_queue_work) queue;
		__typeof__(&aw_flush_work) flush;
		__typeof__(&aw_destroy_workqueue) destroy;

		if (!library) {
			printf("%s\n", dlerror());
			return 3;
		}
		*(void **)&alloc = find(library, "aw_alloc_workqueue");
		*(void **)&queue = find(library, "aw_queue_work");
		*(void **)&flush = find(library, "aw_flush_work");
		*(void **)&destroy = find(library, "aw_destroy_workqueue");
		wq = alloc("plugin", WQ_UNBOUND, 2);
		if (!queue(-1, wq, &work))
			return 4;
		flush(&work);
		/* This item runs while the library is closed. The call does not end the workers. */
		queue(-1, wq, &late);
		dlclose(library);
		destroy(wq);
		if (__atomic_load_n(&nr_runs, __ATOMIC_RELAXED) != 2 * round)
			return 5;
	}
	return 0;
}
