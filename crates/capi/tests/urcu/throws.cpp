// If a C++ exception leaves a callback, the process ends. This is also true with liburcu's names:
// `throws PLACE`, for each flavor.
#ifdef SUITE_QSBR
#define URCU_API_MAP
#include <afterwork/urcu-qsbr.h>
#elif defined(SUITE_BP)
#define URCU_API_MAP
#include <afterwork/urcu-bp.h>
#else
#include <afterwork/urcu.h>
#endif

#include <cstring>

namespace {

void throw_in_callback(struct rcu_head *)
{
	throw 1;
}

void throw_in_function(void *)
{
	throw 2;
}

} // namespace

int main(int argc, char **argv)
{
	static struct rcu_head head;

	rcu_register_thread();
	if (argc > 1 && std::strcmp(argv[1], "call_rcu") == 0)
		call_rcu(&head, throw_in_callback);
	else if (argc > 1)
		defer_rcu(throw_in_function, nullptr);
	rcu_barrier();
	rcu_unregister_thread();
	return 0;
}
