/*
 * Kernel names that the program also uses itself: it declares them again, as members, and as its
 * own functions.
 */
#include <afterwork/percpu.h>
#include <afterwork/rcupdate.h>
#include <afterwork/srcu.h>
#include <afterwork/task_work.h>
#include <afterwork/workqueue.h>

extern struct workqueue_struct *system_wq, *system_unbound_wq, *system_highpri_wq, *system_long_wq;
extern unsigned int nr_cpu_ids;

/* The contents of <linux/jiffies.h> in a port. */
static inline unsigned long msecs_to_jiffies(const unsigned int m) { return m; }
static unsigned int jiffies_to_msecs(const unsigned long j) { return (unsigned int)j; }

struct names {
	struct workqueue_struct *system_wq, *system_dfl_wq;
	unsigned int nr_cpu_ids, num_possible_cpus, raw_smp_processor_id;
	unsigned long jiffies_to_msecs;
};

/* The process-wide queues. */
static struct workqueue_struct **kin[] = {
	&system_wq, &system_percpu_wq, &system_highpri_wq, &system_long_wq, &system_unbound_wq, &system_dfl_wq,
	&system_freezable_wq, &system_power_efficient_wq, &system_freezable_power_efficient_wq,
};

static unsigned int nr_early;
static int nr_runs;

__attribute__((constructor)) static void begin(void)
{
	nr_early = nr_cpu_ids;
}

static void count(struct work_struct *work)
{
	(void)work;
	__atomic_add_fetch(&nr_runs, 1, __ATOMIC_RELAXED);
}

int main(void)
{
	struct names names = { system_wq, system_dfl_wq, nr_cpu_ids, num_possible_cpus(), raw_smp_processor_id(), 0 };
	const int nr_kin = (int)(sizeof(kin) / sizeof(kin[0]));
	struct delayed_work dwork;

	names.jiffies_to_msecs = jiffies_to_msecs(msecs_to_jiffies(1));
	if (!nr_early || names.nr_cpu_ids != nr_early || names.num_possible_cpus != nr_early)
		return 1;
	if (names.raw_smp_processor_id >= nr_early || names.jiffies_to_msecs != 1)
		return 2;
	for (int i = 0; i < nr_kin; i++) {
		DECLARE_WORK(work, count);

		if (!*kin[i] || !queue_work(*kin[i], &work))
			return 3;
		flush_work(&work);
	}
	INIT_DELAYED_WORK(&dwork, count);
	if (names.system_wq != system_percpu_wq || !queue_delayed_work(names.system_wq, &dwork, msecs_to_jiffies(1)))
		return 4;
	flush_delayed_work(&dwork);
	return nr_runs == nr_kin + 1 ? 0 : 5;
}
