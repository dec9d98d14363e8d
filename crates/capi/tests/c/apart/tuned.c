/*
 * Tests a queue without a limit of its own, with `workqueue.max_active=1` in the environment
 * variable `AFTERWORK`. Exits with 3 if no queue can be created.
 */
#include "../check.h"

#include <afterwork/workqueue.h>

struct step {
	struct work_struct work;
	sem_t begun;
	sem_t *go;
};

static void run(struct work_struct *work)
{
	struct step *step = container_of(work, struct step, work);

	sem_post(&step->begun);
	if (step->go)
		gate_wait(step->go);
}

static void begin(struct step *step, struct workqueue_struct *wq)
{
	INIT_WORK(&step->work, run);
	gate_init(&step->begun);
	queue_work(wq, &step->work);
}

int main(void)
{
	struct workqueue_struct *tuned = alloc_workqueue("tuned", WQ_UNBOUND, 0), *own = alloc_workqueue("own", WQ_UNBOUND, 8);
	struct step plug = { .go = NULL }, other = { .go = NULL }, last = { .go = NULL };
	sem_t go;

	if (!tuned || !own)
		return 3;
	gate_init(&go);
	plug.go = &go;
	begin(&plug, tuned);
	gate_wait(&plug.begun);
	begin(&other, tuned);
	/* The item of the queue that has its own limit does not wait. */
	begin(&last, own);
	gate_wait(&last.begun);
	if (sem_trywait(&other.begun) == 0)
		return 1;
	sem_post(&go);
	destroy_workqueue(tuned);
	destroy_workqueue(own);
	return sem_trywait(&other.begun) == 0 ? 0 : 2;
}
