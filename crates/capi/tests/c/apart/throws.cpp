// What unwinds out of a function that the library calls ends the process: an item, a callback, task work.
#include <afterwork/rcupdate.h>
#include <afterwork/task_work.h>
#include <afterwork/workqueue.h>

#include <cstring>

namespace {

void throw_in_item(struct work_struct *)
{
	throw 1;
}

void throw_in_callback(struct rcu_head *)
{
	throw 2;
}

void throw_in_task_work(struct callback_head *)
{
	throw 3;
}

} // namespace

int main(int argc, char **argv)
{
	const char *where = argc > 1 ? argv[1] : "";

	if (std::strcmp(where, "item") == 0) {
		static struct work_struct work;

		INIT_WORK(&work, throw_in_item);
		schedule_work(&work);
		flush_work(&work);
	} else if (std::strcmp(where, "callback") == 0) {
		static struct rcu_head head;

		call_rcu(&head, throw_in_callback);
		rcu_barrier();
	} else {
		static struct callback_head work;

		init_task_work(&work, throw_in_task_work);
		task_work_add(get_current(), &work, TWA_NONE);
		task_work_run();
	}
	return 0;
}
