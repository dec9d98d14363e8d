// An exception or the exit of the thread leaves a function that the library calls: `throws PLACE
// throw` or `throws PLACE exit`.
#include <afterwork/percpu.h>
#include <afterwork/rcupdate.h>
#include <afterwork/srcu.h>
#include <afterwork/task_work.h>
#include <afterwork/workqueue.h>

#include <cstring>

#include <pthread.h>
#include <sys/resource.h>

namespace {

bool exits;

void leave()
{
	if (exits)
		pthread_exit(nullptr);
	throw 1;
}

void throw_in_item(struct work_struct *)
{
	leave();
}

void throw_in_callback(struct rcu_head *)
{
	leave();
}

void throw_in_task_work(struct callback_head *)
{
	leave();
}

long throw_in_call(void *)
{
	leave();
	return 0;
}

void in_item()
{
	static struct work_struct work;

	INIT_WORK(&work, throw_in_item);
	schedule_work(&work);
	flush_work(&work);
}

void in_delayed_item()
{
	static struct delayed_work dwork;

	INIT_DELAYED_WORK(&dwork, throw_in_item);
	schedule_delayed_work(&dwork, 1);
	flush_delayed_work(&dwork);
}

void in_rcu_work()
{
	static struct rcu_work rwork;

	INIT_RCU_WORK(&rwork, throw_in_item);
	queue_rcu_work(system_wq, &rwork);
	flush_rcu_work(&rwork);
}

void on_cpu()
{
	(void)work_on_cpu(0, throw_in_call, nullptr);
}

void on_each_cpu()
{
	(void)schedule_on_each_cpu(throw_in_item);
}

void while_blocking()
{
	(void)afterwork_blocking(throw_in_call, nullptr);
}

void in_percpu_work()
{
	static struct pw_struct work;

	INIT_PW(&work, throw_in_item, 0);
	queue_percpu_work_on(0, system_wq, &work);
	flush_percpu_work(&work);
}

void in_callback()
{
	static struct rcu_head head;

	call_rcu(&head, throw_in_callback);
	rcu_barrier();
}

void in_srcu_callback()
{
	static struct rcu_head head;
	static struct srcu_struct domain;

	init_srcu_struct(&domain);
	call_srcu(&domain, &head, throw_in_callback);
	srcu_barrier(&domain);
}

void in_task_work()
{
	static struct callback_head work;

	init_task_work(&work, throw_in_task_work);
	task_work_add(get_current(), &work, TWA_NONE);
	task_work_run();
}

void nothing(struct work_struct *)
{
}

void in_hook()
{
	static struct work_struct work;

	afterwork_on_worker_start(leave);
	INIT_WORK(&work, nothing);
	queue_work(alloc_workqueue("hooked", WQ_MEM_RECLAIM, 1), &work);
	flush_work(&work);
}

const struct place {
	const char *name;
	void (*run)();
} places[] = {
	{ "item", in_item },
	{ "delayed item", in_delayed_item },
	{ "rcu work", in_rcu_work },
	{ "on cpu", on_cpu },
	{ "on each cpu", on_each_cpu },
	{ "blocking", while_blocking },
	{ "per-CPU work", in_percpu_work },
	{ "callback", in_callback },
	{ "srcu callback", in_srcu_callback },
	{ "task work", in_task_work },
	{ "hook", in_hook },
};

} // namespace

int main(int argc, char **argv)
{
	const struct rlimit no_core = { 0, 0 };

	setrlimit(RLIMIT_CORE, &no_core);
	exits = argc > 2 && std::strcmp(argv[2], "exit") == 0;
	for (const auto &place : places)
		if (argc > 1 && std::strcmp(argv[1], place.name) == 0)
			place.run();
	return 0;
}
