/* Uses the headers from C++: a class has items as members. */
#include <afterwork/rcupdate.h>
#include <afterwork/srcu.h>
#include <afterwork/workqueue.h>

#include <atomic>
#include <cstdlib>
#include <memory>

namespace {

struct counter {
	struct work_struct work;
	struct delayed_work later;
	std::atomic<int> nr_runs{ 0 };

	counter()
	{
		INIT_WORK(&work, count);
		INIT_DELAYED_WORK(&later, count_later);
	}

	~counter()
	{
		cancel_work_sync(&work);
		cancel_delayed_work_sync(&later);
	}

	static void count(struct work_struct *item)
	{
		container_of(item, counter, work)->nr_runs++;
	}

	static void count_later(struct work_struct *item)
	{
		container_of(to_delayed_work(item), counter, later)->nr_runs++;
	}
};

std::atomic<int> nr_declared{ 0 };
DECLARE_WORK(declared, [](struct work_struct *) { nr_declared++; });
DEFINE_SRCU(domain);

struct first {
	long one = 1;
};

struct second {
	long two = 2;
};

struct both : first, second {
};

second *published;

// A base class that is not the first one has a different address from the whole object.
bool pointers_to_bases_are_converted()
{
	both it;
	second *base = &it;

	rcu_assign_pointer(published, &it);
	bool are = rcu_dereference(published) == base;
	rcu_assign_pointer(published, nullptr);
	are = are && rcu_replace_pointer(published, &it, true) == nullptr;
	are = are && rcu_replace_pointer(published, NULL, true) == base;
	RCU_INIT_POINTER(published, &it);
	are = are && rcu_access_pointer(published) == base;
	RCU_INIT_POINTER(published, nullptr);
	return are;
}

} // namespace

int main()
{
	auto *wq = alloc_workqueue("%s-%d", WQ_UNBOUND | WQ_HIGHPRI, 2, "cpp", 17);
	auto it = std::make_unique<counter>();

	if (!pointers_to_bases_are_converted())
		return 4;
	if (!wq || !queue_work(wq, &it->work) || !queue_delayed_work(wq, &it->later, 3600 * HZ))
		return 1;
	flush_work(&it->work);
	flush_delayed_work(&it->later);
	if (it->nr_runs != 2)
		return 2;
	schedule_work(&declared);
	flush_work(&declared);
	if (nr_declared != 1)
		return 3;
	srcu_read_unlock(&domain, srcu_read_lock(&domain));
	synchronize_srcu(&domain);
	rcu_read_lock();
	rcu_read_unlock();
	synchronize_rcu();
	it.reset();
	destroy_workqueue(wq);
	return 0;
}
