/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/* Maps liburcu's common names to the flavor in AFTERWORK_URCU_FLAVOR. The default is memb. */
#ifndef AFTERWORK_URCU_MAP_H
#define AFTERWORK_URCU_MAP_H

#include "urcu-flavors.h"

#ifndef AFTERWORK_URCU_FLAVOR
#define AFTERWORK_URCU_FLAVOR memb
#endif

#define AFTERWORK_URCU_JOIN_(flavor, name) urcu_##flavor##_##name
#define AFTERWORK_URCU_JOIN(flavor, name) AFTERWORK_URCU_JOIN_(flavor, name)
#define AFTERWORK_URCU_NAME(name) AFTERWORK_URCU_JOIN(AFTERWORK_URCU_FLAVOR, name)

#define rcu_read_lock AFTERWORK_URCU_NAME(read_lock)
#define _rcu_read_lock AFTERWORK_URCU_NAME(read_lock)
#define rcu_read_unlock AFTERWORK_URCU_NAME(read_unlock)
#define _rcu_read_unlock AFTERWORK_URCU_NAME(read_unlock)
#define rcu_read_ongoing AFTERWORK_URCU_NAME(read_ongoing)
#define _rcu_read_ongoing AFTERWORK_URCU_NAME(read_ongoing)
#define rcu_quiescent_state AFTERWORK_URCU_NAME(quiescent_state)
#define _rcu_quiescent_state AFTERWORK_URCU_NAME(quiescent_state)
#define rcu_thread_offline AFTERWORK_URCU_NAME(thread_offline)
#define _rcu_thread_offline AFTERWORK_URCU_NAME(thread_offline)
#define rcu_thread_online AFTERWORK_URCU_NAME(thread_online)
#define _rcu_thread_online AFTERWORK_URCU_NAME(thread_online)
#define rcu_register_thread AFTERWORK_URCU_NAME(register_thread)
#define rcu_unregister_thread AFTERWORK_URCU_NAME(unregister_thread)
#define rcu_init AFTERWORK_URCU_NAME(init)
#define rcu_exit AFTERWORK_URCU_NAME(exit)
#define synchronize_rcu AFTERWORK_URCU_NAME(synchronize_rcu)
#define start_poll_synchronize_rcu AFTERWORK_URCU_NAME(start_poll_synchronize_rcu)
#define poll_state_synchronize_rcu AFTERWORK_URCU_NAME(poll_state_synchronize_rcu)
#define rcu_flavor AFTERWORK_URCU_NAME(flavor)

#define call_rcu AFTERWORK_URCU_NAME(call_rcu)
#define rcu_barrier AFTERWORK_URCU_NAME(barrier)
#define create_call_rcu_data AFTERWORK_URCU_NAME(create_call_rcu_data)
#define call_rcu_data_free AFTERWORK_URCU_NAME(call_rcu_data_free)
#define get_default_call_rcu_data AFTERWORK_URCU_NAME(get_default_call_rcu_data)
#define get_cpu_call_rcu_data AFTERWORK_URCU_NAME(get_cpu_call_rcu_data)
#define get_thread_call_rcu_data AFTERWORK_URCU_NAME(get_thread_call_rcu_data)
#define get_call_rcu_data AFTERWORK_URCU_NAME(get_call_rcu_data)
#define get_call_rcu_thread AFTERWORK_URCU_NAME(get_call_rcu_thread)
#define set_thread_call_rcu_data AFTERWORK_URCU_NAME(set_thread_call_rcu_data)
#define set_cpu_call_rcu_data AFTERWORK_URCU_NAME(set_cpu_call_rcu_data)
#define create_all_cpu_call_rcu_data AFTERWORK_URCU_NAME(create_all_cpu_call_rcu_data)
#define free_all_cpu_call_rcu_data AFTERWORK_URCU_NAME(free_all_cpu_call_rcu_data)
#define call_rcu_before_fork AFTERWORK_URCU_NAME(call_rcu_before_fork)
#define call_rcu_after_fork_parent AFTERWORK_URCU_NAME(call_rcu_after_fork_parent)
#define call_rcu_after_fork_child AFTERWORK_URCU_NAME(call_rcu_after_fork_child)

#define defer_rcu AFTERWORK_URCU_NAME(defer_rcu)
#define rcu_defer_register_thread AFTERWORK_URCU_NAME(defer_register_thread)
#define rcu_defer_unregister_thread AFTERWORK_URCU_NAME(defer_unregister_thread)
#define rcu_defer_barrier AFTERWORK_URCU_NAME(defer_barrier)
#define rcu_defer_barrier_thread AFTERWORK_URCU_NAME(defer_barrier_thread)
#define rcu_defer_exit AFTERWORK_URCU_NAME(defer_exit)

#define urcu_register_rculfhash_atfork AFTERWORK_URCU_NAME(register_rculfhash_atfork)
#define urcu_unregister_rculfhash_atfork AFTERWORK_URCU_NAME(unregister_rculfhash_atfork)

#endif
