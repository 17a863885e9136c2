/* qemu_args.h — the command line of one guest and the QMP arguments of its disks.
 * The bus: root ports rp0 ... rp15 for disks (slot = port: the order of disks never changes),
 * rp16 ... rp19 for network interfaces, all made at launch, so that plugging needs nothing but
 * a free port. Taps and sockets are named by their number in QEMU; disks by the path of a socket of
 * the block service, because QEMU connects again by itself when that service was away.
 * Not here: descriptors' life, starting anything.
 * Threads:  no state.
 * Memory:   everything is allocated in the arena given.
 * Errors:   -EINVAL "BadLaunch" for values that no launch may have. */
#pragma once
#include "base/arena.h"
#include "base/buf.h"
#include "base/err.h"
#include "compute/guest_proto.h"
#include <stdint.h>

#define QEMU_MAX_QUEUES \
    8u /* per interface: the descriptors of a guest stay below CHILD_MAX_FDS */
#define QEMU_MAX_DISK_QUEUES 8u
#define QEMU_VARS_SET        1u /* fdset of the UEFI variables */
#define QEMU_LABEL_MAX       32u

struct qemu_disk {
    const char
        *path; /* vhost-user-blk socket of the block service; NULL = this slot is empty */
    const char *volume_id;
    bool is_root;
};

struct qemu_nic {
    int fds[QEMU_MAX_QUEUES];
    size_t n_queues; /* 0 = no such interface */
    const char *mac;
    uint64_t mtu;
};

struct qemu_launch {
    const char *id;       /* instance id */
    const char *arch;     /* "x86_64" or "arm64" */
    const char *type;     /* instance type: shown in DMI */
    bool is_kvm, is_uefi; /* without KVM disks are NBD sockets */
    uint64_t n_vcpus, memory_mib;
    int qmp_fd, console_fd; /* listening sockets */
    int vars_fd;            /* UEFI variables of this instance */
    const char *firmware;   /* file of the UEFI code */
    const char *pid_file;
    struct qemu_disk disk[GM_N_DISKS];
    struct qemu_nic nic[GM_N_NICS];
};

/* Name of the program for an architecture ("qemu-system-x86_64"), NULL when we know none. */
const char *qemu_program(const char *arch);

/* "-machine" without what belongs to one guest, and "-cpu"; for the probe. The architecture
 * must be known. */
void qemu_machine(const char *arch, bool is_kvm, char *ret, size_t size, const char **ret_cpu);

/* NULL-terminated argument vector; argv[0] is the program's name. */
MUST_CHECK int qemu_args(struct arena *a, const struct qemu_launch *l,
                         const char *const **ret_argv, struct err *err);

/* The DMI product UUID: "ec2", then digits that only depend on the instance id. */
#define QEMU_UUID_SIZE 37
void qemu_uuid(const char *instance_id, char ret[QEMU_UUID_SIZE]);

/* Two ways to a disk. vhost-user: another process reads and writes the guest's memory. QEMU's own
 * emulation does not see that code was written there, so that guests run old code: without KVM it
 * is NBD, over which QEMU moves the bytes itself. Both connect again by themselves.
 *
 * The name of a disk's connection (of a character device, or of an NBD node) says which volume sits
 * where: "<letter><slot>.<volume id>", 'c' vhost-user, 'n' and 'm' NBD (in turn, when it is opened
 * anew); a new monitor knows by it what an older one has plugged. */
void qemu_disk_label(char letter, unsigned slot, const char *volume_id,
                     char ret[QEMU_LABEL_MAX]);
/* The reverse; false for any other name. */
bool qemu_disk_of_label(struct str label, char *ret_letter, unsigned *ret_slot,
                        char ret_id[GM_NAME_MAX]);
/* JSON arguments, appended: of chardev-add; of blockdev-add (the NBD node; the node d<slot> that
 * the device uses; the node x<slot> that answers every request with an error); of device_add
 * (disk<slot>). */
void qemu_disk_chardev_json(struct buf *out, unsigned slot, const char *volume_id,
                            const char *path);
void qemu_disk_nbd_json(struct buf *out, char letter, unsigned slot, const char *volume_id,
                        const char *path);
void qemu_disk_node_json(struct buf *out, unsigned slot, const char *child);
void qemu_disk_dead_json(struct buf *out, unsigned slot, uint64_t size);
void qemu_disk_device_json(struct buf *out, unsigned slot, const char *volume_id, bool is_nbd,
                           size_t n_queues, bool is_root);
/* Queues of a disk of a guest with so many vCPUs. */
size_t qemu_disk_queues(uint64_t n_vcpus);
