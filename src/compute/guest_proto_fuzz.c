/* The only bytes of an unprivileged process that the root service looks at. What is accepted has
 * fields in range and texts that end and can be printed. */
#include "compute/guest_proto.h"
#include <assert.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_text(const char *s, size_t size)
{
    size_t n = strnlen(s, size);
    assert(n < size);
    for (size_t i = 0; i < n; i++) {
        assert(s[i] >= ' ' && s[i] <= '~');
    }
}

static void check_state(const struct gm_state *s)
{
    assert(s->phase >= 1 && s->phase < GM_PHASE_N && s->exit < GM_EXIT_N && s->qemu_pid >= 0);
    check_text(s->text, sizeof(s->text));
    for (unsigned i = 0; i < GM_N_DISKS; i++) {
        assert(s->slot[i] < GM_SLOT_N);
        check_text(s->name[i], sizeof(s->name[i]));
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    union gm_msg m;
    memset(&m, 0xa5, sizeof(m));
    memcpy(&m, data, MIN(size, sizeof(m)));
    /* Half of the inputs get the head that the rest of their bytes deserves. */
    if (size >= sizeof(m.head) && (data[0] & 1)) {
        static const uint32_t sizes[] = {sizeof(struct gm_cmd), sizeof(struct gm_result),
                                         sizeof(struct gm_state)};
        unsigned type = data[1] % 3;
        m.head = (struct gm_head){.magic = GM_MAGIC,
                                  .version = GM_VERSION,
                                  .type = (uint16_t)(GM_CMD + type),
                                  .size = sizes[type]};
        size = sizes[type];
    }
    if (gm_cmd_check(&m, size) == 0) {
        assert(m.cmd.op > 0 && m.cmd.op < GM_OP_N && m.cmd.slot < GM_N_DISKS);
        assert(m.cmd.data_n <= sizeof(m.cmd.data));
        check_text(m.cmd.name, sizeof(m.cmd.name));
        assert(gm_answer_check(&m, size) < 0);
    }
    if (gm_answer_check(&m, size) == 0) {
        if (m.head.type == GM_STATE) {
            check_state(&m.state);
        } else {
            assert(m.head.type == GM_RESULT && m.result.code <= 0);
            check_text(m.result.text, sizeof(m.result.text));
        }
    }
    return 0;
}
