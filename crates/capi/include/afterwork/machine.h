/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * The CPUs that the library afterwork uses, for programs that know them better than the system.
 *
 * Sandboxes show only parts of sysfs and procfs, or nothing. The library then uses the CPUs of the
 * affinity mask as equal CPUs, and writes one line on stderr. A program that knows more passes the
 * CPUs itself, before it calls anything else of the library.
 */
#ifndef AFTERWORK_MACHINE_H
#define AFTERWORK_MACHINE_H

#ifdef __cplusplus
extern "C" {
#endif

/* The library's symbol, documented at afterwork_set_cpus below. */
int aw_set_cpus(const char *list);

/**
 * afterwork_set_cpus - use these CPUs, and do not detect any
 * @list: a CPU list as in cpusets, such as "0-3,8"
 *
 * The CPUs share one cache, and each is a core of its own. Later changes of the machine are not
 * noticed. This describes the machine and does not bind threads: the library's threads keep the
 * affinity mask of the process's first thread. Call it before the library has used the CPUs.
 *
 * Return: 0; -EINVAL if LIST is NULL, malformed or empty, or contains a CPU that is not below
 * nr_cpu_ids; -EBUSY if the library has determined its CPUs already.
 */
static inline int afterwork_set_cpus(const char *list)
{
	return aw_set_cpus(list);
}

#ifdef __cplusplus
}
#endif

#endif
