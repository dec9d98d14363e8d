/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Sets the CPUs that the library afterwork uses, for programs that know them better than the
 * system.
 *
 * Sandboxes may hide sysfs and procfs, wholly or in part. The library then treats the CPUs of the
 * affinity mask as equal, and writes one line to stderr. A program that knows more can pass the
 * CPUs itself, before it calls any other function of the library.
 */
#ifndef AFTERWORK_MACHINE_H
#define AFTERWORK_MACHINE_H

#ifdef __cplusplus
extern "C" {
#endif

/* The library's own symbol; see afterwork_set_cpus below. */
int aw_set_cpus(const char *list);

/**
 * afterwork_set_cpus - use these CPUs instead of detecting them
 * @list: a CPU list as in cpusets, such as "0-3,8"
 *
 * The library assumes that the CPUs share one cache, and that each is a core of its own. It does
 * not notice later changes of the machine. This call describes the machine and does not bind
 * threads: the library's threads keep the affinity mask of the process's first thread. Call it
 * before the library has used the CPUs.
 *
 * Return: 0; -EINVAL if LIST is NULL, malformed or empty, or contains a CPU that is not below
 * nr_cpu_ids; -EBUSY if the library has already determined its CPUs.
 */
static inline int afterwork_set_cpus(const char *list)
{
	return aw_set_cpus(list);
}

#ifdef __cplusplus
}
#endif

#endif
