#include "ostore/heal.h"
int heal_start(const struct heal_opts *o, struct heal **ret, struct err *err)
{
    *ret = NULL;
    return 0;
}
void heal_stop(struct heal *h)
{
}
void heal_wake(struct heal *h)
{
}
void heal_note_bad(struct heal *h, const struct orec_body *body, uint32_t shards)
{
}
void heal_status(struct heal *h, struct heal_status *ret)
{
}
