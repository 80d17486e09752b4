/* Limits of names and objects of the NVTX library, which is part of this program. */
#include "locks.h"

#include "../../preload/nvtx.c"

static char text[64];

static const char *numbered(const char *what, int number)
{
    snprintf(text, sizeof text, "%s %d", what, number);
    return text;
}

static void made_up_names_are_limited(void)
{
    unsigned long before;
    int i;
    for (i = 0; i < MAX_MADE_UP + 100; ++i)
        mark_text(numbered("made up", i));
    EXPECT(made_up_count == MAX_MADE_UP);
    before = lock_count;
    for (i = 0; i < 1000; ++i)
        mark_text(numbered("one more", i));
    EXPECT(lock_count == before);
}

static void registered_strings_are_limited(void)
{
    unsigned long before;
    int i;
    EXPECT(register_string(NULL, "first"));
    for (i = 0; i < MAX_GIVEN + 100; ++i)
        register_string(NULL, numbered("registered", i));
    EXPECT(given_count == MAX_GIVEN);
    before = lock_count;
    EXPECT(!register_string(NULL, "one more"));
    EXPECT(!register_wide(NULL, L"one more"));
    EXPECT(register_string(NULL, "first"));
    EXPECT(lock_count == before);
}

static void events_are_limited(void)
{
    struct attributes attributes = {3, sizeof attributes, .message_type = MESSAGE_REGISTERED};
    unsigned long before;
    char room[MAX_TEXT];
    struct nvtx_mark mark;
    int i;
    for (i = 0; i < MAX_GIVEN; ++i) {
        attributes.message.registered = register_string(NULL, numbered("registered", i));
        domain_mark(NULL, &attributes);
        if (named_count >= MAX_NAMED_EVENTS - OWN_EVENTS)
            break;
    }
    EXPECT(named_count == MAX_NAMED_EVENTS - OWN_EVENTS);
    attributes.message.registered = register_string(NULL, numbered("registered", MAX_GIVEN - 200));
    EXPECT(attributes.message.registered);
    EXPECT(domain_push(NULL, &attributes) == 0);
    mark = find_mark(NULL, &attributes, KIND_RANGE, room);
    EXPECT(mark.event && mark.event->name == range_name && mark.event->provider == own_domain);
    EXPECT(mark.has == HAS_TEXT && mark.message.size == strlen(text));
    EXPECT(!memcmp(mark.message.bytes, text, mark.message.size));
    before = lock_count;
    EXPECT(domain_push(NULL, &attributes) == 1);
    EXPECT(domain_pop(NULL) == 1 && domain_pop(NULL) == 0);
    EXPECT(lock_count == before);
}

static void objects_are_used_again(void)
{
    void *first = sync_create(NULL, NULL), *second, *third;
    int i;
    for (i = 0; i < 3 * MAX_SYNC_OBJECTS; ++i) {
        sync_destroy(first);
        EXPECT(sync_create(NULL, NULL) == first);
    }
    sync_destroy(first);
    sync_destroy(first);
    second = sync_create(NULL, NULL);
    third = sync_create(NULL, NULL);
    EXPECT(second == first && third && third != second);
    for (i = 0; i < MAX_SYNC_OBJECTS; ++i)
        first = sync_create(NULL, NULL);
    EXPECT(!first && sync_count == MAX_SYNC_OBJECTS);
    sync_acquire_start(first);
    sync_destroy(first);
}

static void bytes_of_texts_are_limited(void)
{
    const uint32_t before = given_count;
    /* As if there were as many: texts of this size would take the test long. */
    given_count = 0;
    text_bytes = MAX_TEXT_BYTES;
    EXPECT(!register_string(NULL, "no room"));
    EXPECT(given_count == 0);
    given_count = before;
}

int main(void)
{
    made_up_names_are_limited();
    registered_strings_are_limited();
    events_are_limited();
    objects_are_used_again();
    bytes_of_texts_are_limited();
    return 0;
}
