/*
 * A program that is linked with the static library and opens the shared one, so that it contains
 * two copies. The arguments are the shared library, and then "s" (static) or "d" (dynamic) for each
 * copy to use, in order.
 */
#include <afterwork/rcupdate.h>
#include <afterwork/workqueue.h>

#include <dlfcn.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

static void use(void *library, const char *order)
{
	for (; *order; order++) {
		if (*order == 's') {
			synchronize_rcu();
		} else {
			__typeof__(&aw_alloc_workqueue) alloc;
			__typeof__(&aw_destroy_workqueue) destroy;

			*(void **)&alloc = dlsym(library, "aw_alloc_workqueue");
			*(void **)&destroy = dlsym(library, "aw_destroy_workqueue");
			destroy(alloc("copy", WQ_UNBOUND, 1));
		}
	}
}

int main(int argc, char **argv)
{
	void *library = argc == 3 ? dlopen(argv[1], RTLD_NOW | RTLD_LOCAL) : NULL;
	int status;
	pid_t pid;

	if (!library)
		return 2;
	use(library, argv[2]);
	/* A child of fork must not report the copies again. */
	pid = fork();
	if (pid == 0) {
		use(library, argv[2]);
		_exit(0);
	}
	return pid > 0 && waitpid(pid, &status, 0) == pid && status == 0 ? 0 : 3;
}
