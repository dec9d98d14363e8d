/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * The CPUs that the library afterwork uses, for programs that know them better than the system reports them.
 *
 * Sandboxes show only parts of sysfs and procfs, or nothing. The library then has the CPUs of the affinity mask, all alike, and
 * writes one line on stderr. A program that knows more gives the CPUs itself, before anything else of the library is called.
 */
#ifndef AFTERWORK_MACHINE_H
#define AFTERWORK_MACHINE_H

#ifdef __cplusplus
extern "C" {
#endif

/* The symbol of the library. afterwork_set_cpus below documents it. */
int aw_set_cpus(const char *list);

/**
 * afterwork_set_cpus - use these CPUs, and detect none
 * @list: a CPU list as in cpusets, such as "0-3,8"
 *
 * The CPUs share one cache, and each is a core. CPUs that come or go later are not noticed. This describes the machine and binds no
 * thread: the library's threads keep the affinity mask of the process's first thread. It is for the time before anything else of
 * the library has used the CPUs.
 *
 * Return: 0; -EINVAL if LIST is NULL, malformed or empty, or has a CPU that is not below nr_cpu_ids; -EBUSY if the library has its
 * CPUs already.
 */
static inline int afterwork_set_cpus(const char *list)
{
	return aw_set_cpus(list);
}

#ifdef __cplusplus
}
#endif

#endif
