/* imgfmt.h — which disk format a file has, and whether its header asks for anything that an
 * import must not follow.
 * Not here: unpacking (unpack.h), converting (qemu-img in a sandbox, import_run.h). Pure
 *           functions over the first bytes of a file. Refused: backing files, external data
 *           files, encryption, descriptors that name other files, sizes past the limit, feature
 *           bits that nobody has checked.
 * Threads, memory: no state; results are static strings.
 * Errors:   -EINVAL "BadImage" (damaged or hostile), -ENOTSUP "UnsupportedImage", -EFBIG
 *           "ImageTooLarge". */
#pragma once
#include "base/err.h"
#include "base/str.h"
#include <stdbool.h>
#include <stdint.h>

#define IMG_HEAD_SIZE \
    65536u /* bytes that img_sniff() and img_check() want to see, or all when there are fewer \
            */
#define IMG_FOOTER_SIZE 512u

/* X(enum word, name in arguments and messages) */
#define IMG_FORMATS(X) \
    X(UNKNOWN, "auto") \
    X(RAW, "raw")      \
    X(QCOW2, "qcow2")  \
    X(VMDK, "vmdk")    \
    X(VHDX, "vhdx")    \
    X(VPC, "vhd")      \
    X(GZ, "gz")        \
    X(XZ, "xz")        \
    X(ZST, "zst")      \
    X(TAR, "tar")

enum img_format {
#define X(e, n) IMG_##e,
    IMG_FORMATS(X)
#undef X
        IMG_N
};

const char *img_format_name(enum img_format f);
/* "ova" is "tar", "vpc" is "vhd", "" is "auto". */
MUST_CHECK int img_format_parse(struct str name, enum img_format *ret, struct err *err);
/* The name that qemu-img knows: raw, qcow2, vmdk, vhdx, vpc; NULL for layers. */
const char *img_qemu_driver(enum img_format f);
bool img_is_layer(enum img_format f); /* gz, xz, zst, tar: something else is inside */

/* By magic; a disk without a format of its own must carry a boot signature to be taken for raw,
 * else IMG_UNKNOWN. */
enum img_format img_sniff(struct str head);
/* A word for what the file seems to be when img_sniff() does not know it; never NULL. */
const char *img_guess(struct str head);
/* Checks the header of a disk format. *ret_size: the size of the disk when the header says it,
 * else 0. */
MUST_CHECK int img_check(enum img_format f, struct str head, uint64_t max_size,
                         uint64_t *ret_size, struct err *err);
/* The last 512 bytes of a fixed VHD: what lies before them is the raw disk. */
bool img_is_fixed_vhd_footer(struct str footer);
