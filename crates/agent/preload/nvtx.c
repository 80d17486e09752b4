/*
 * libtompion-nvtx.so: records the marks of programs that use NVIDIA's Tools Extension (NVTX 3).
 *
 *     NVTX_INJECTION64_PATH=/usr/lib/libtompion-nvtx.so ./program   (`tompion record --marks nvtx`)
 *
 * NVTX's header, which programs are compiled with, loads the library that the variable names, by
 * the first mark, and calls `InitializeInjectionNvtx2`. That asks for tables of pointers through
 * which the program calls, and puts this file's functions there. docs/design/marks.md says what
 * becomes of each mark.
 *
 * What is declared here is the interface of NVTX 3 as its documentation and users show it.
 */
#define _GNU_SOURCE
#define MARKS_ORIGIN "NVTX"
#include <wchar.h>

#include "marks/flow.h"
#include "marks/named.h"
#include "marks/thread.h"

/* -- What programs and the library share -- */

enum { TABLE_OF_CALLBACKS = 1 };
enum { MODULE_CORE = 1, MODULE_CORE2 = 5, MODULE_SYNC = 6 };

typedef void (*function)(void);
struct callbacks {
    size_t struct_size;
    int (*table_of_module)(int module, function ***table, unsigned *size);
};

union message {
    const char *text;
    const wchar_t *wide;
    const void *registered;
};
enum { MESSAGE_NONE, MESSAGE_TEXT, MESSAGE_WIDE, MESSAGE_REGISTERED };
enum { PAYLOAD_NONE, PAYLOAD_U64, PAYLOAD_I64, PAYLOAD_F64, PAYLOAD_U32, PAYLOAD_I32, PAYLOAD_F32 };
struct attributes {
    uint16_t version, size;
    uint32_t category;
    int32_t color_type;
    uint32_t color;
    int32_t payload_type, reserved;
    union {
        uint64_t u64;
        int64_t i64;
        double f64;
        uint32_t u32;
        int32_t i32;
        float f32;
    } payload;
    int32_t message_type;
    union message message;
};
struct resource {
    uint16_t version, size;
    int32_t identifier_type;
    union {
        const void *pointer;
        uint64_t number;
    } identifier;
    int32_t message_type;
    union message message;
};
struct sync_attributes {
    uint16_t version, size;
    int32_t message_type;
    union message message;
};

/* What a push or pop returns where there is no level. */
enum { NO_LEVEL = -2 };

/* -- Shapes: each set of fields that a mark can have, for each kind -- */

/* What a mark has besides its name. */
enum { HAS_CATEGORY = 1, HAS_COLOR = 2, HAS_PAYLOAD = 4, PAYLOAD_KINDS = 4, HAS_TEXT = 16, SHAPES = 32 };

enum { KIND_MARK, KIND_RANGE, KIND_FLOW, KINDS };

static struct shape shapes[KINDS][SHAPES];
static struct shape_field shape_fields[KINDS][SHAPES][7];

/* Fills in the table, which stays as it is from then on. Before the first mark. */
static void make_shapes(void)
{
    static const uint8_t kinds[KINDS] = {tompion_priv_kind_INSTANT, tompion_priv_kind_BEGIN, tompion_priv_kind_FLOW};
    static const int payloads[PAYLOAD_KINDS] = {0, tompion_priv_code_u64, tompion_priv_code_i64, tompion_priv_code_f64};
    int kind, what;
    for (kind = 0; kind < KINDS; ++kind) {
        for (what = 0; what < SHAPES; ++what) {
            struct shape_field *fields = shape_fields[kind][what];
            const int payload = payloads[what / HAS_PAYLOAD % PAYLOAD_KINDS];
            unsigned count = 0;
            if (kind == KIND_FLOW) {
                fields[count++] = (struct shape_field){"id", tompion_priv_code_x64};
                fields[count++] = (struct shape_field)STEP_FIELD;
            }
            if (what & HAS_TEXT)
                fields[count++] = (struct shape_field){"message", tompion_priv_code_strn};
            if (what & HAS_CATEGORY)
                fields[count++] = (struct shape_field){"category", tompion_priv_code_u32};
            if (what & HAS_COLOR)
                fields[count++] = (struct shape_field){"color", tompion_priv_code_x32};
            if (payload)
                fields[count++] = (struct shape_field){"payload", payload};
            shapes[kind][what] =
                (struct shape){kinds[kind], 0, fields, count, kind == KIND_FLOW ? step_enums : NULL};
        }
    }
}

static const struct shape_field category_fields[] = {{"category", tompion_priv_code_u32}, {"name", tompion_priv_code_strn}};
static const struct shape category_shape = {tompion_priv_kind_INSTANT, 1, category_fields, 2, NULL};
static const struct shape_field resource_fields[] = {
    {"type", tompion_priv_code_x32}, {"identifier", tompion_priv_code_x64}, {"name", tompion_priv_code_strn}};
static const struct shape resource_shape = {tompion_priv_kind_INSTANT, 1, resource_fields, 3, NULL};
static const struct shape_field sync_fields[] = {{"object", tompion_priv_code_x64}, {"name", tompion_priv_code_str}};
static const struct shape sync_shape = {tompion_priv_kind_INSTANT, 0, sync_fields, 2, NULL};

/* -- Names -- */

/* Wide text as UTF-8; what is no character becomes `?`. Returns the size, without a NUL. */
static size_t narrow(char *to, size_t room, const wchar_t *from)
{
    size_t size = 0;
    for (; from && *from && size + 4 < room; ++from) {
        const uint32_t c = (uint32_t)*from;
        if (c < 0x80) {
            to[size++] = (char)c;
        } else if (c < 0x800) {
            to[size++] = (char)(0xc0 | c >> 6);
            to[size++] = (char)(0x80 | (c & 0x3f));
        } else if (c > 0x10ffff || (c >= 0xd800 && c < 0xe000)) {
            to[size++] = '?';
        } else if (c < 0x10000) {
            to[size++] = (char)(0xe0 | c >> 12);
            to[size++] = (char)(0x80 | (c >> 6 & 0x3f));
            to[size++] = (char)(0x80 | (c & 0x3f));
        } else {
            to[size++] = (char)(0xf0 | c >> 18);
            to[size++] = (char)(0x80 | (c >> 12 & 0x3f));
            to[size++] = (char)(0x80 | (c >> 6 & 0x3f));
            to[size++] = (char)(0x80 | (c & 0x3f));
        }
    }
    return size;
}


/* A domain and a registered string are texts; a domain has a counter of its levels per thread. */
static struct text *own_domain, *category_name, *resource_name, *range_name, *mark_name, *unnamed;
static struct text *sync_start, *sync_failed, *sync_success, *sync_releasing;

static const struct text *domain_of(const void *handle)
{
    return handle ? handle : own_domain;
}

static struct text *wide_text(const wchar_t *wide)
{
    char bytes[MAX_TEXT];
    return text_of(bytes, narrow(bytes, sizeof bytes, wide), GIVEN);
}

/* A message: a text that is there once, or its bytes where it can't be (too many were made up). */
struct message_text {
    const struct text *name; /* or NULL */
    const char *bytes;
    size_t size;
};

static struct message_text message_of(int type, union message message, char *room, size_t room_size)
{
    struct message_text found = {NULL, "", 0};
    switch (type) {
    case MESSAGE_TEXT:
        found.bytes = message.text ? message.text : "";
        found.size = strlen(found.bytes);
        break;
    case MESSAGE_WIDE:
        found.bytes = room;
        found.size = narrow(room, room_size, message.wide);
        break;
    case MESSAGE_REGISTERED:
        found.name = message.registered;
        break;
    default: return found;
    }
    if (!found.name && found.size)
        found.name = text_of(found.bytes, found.size, MADE_UP);
    return found;
}

/* -- Marks and ranges -- */

/* A mark: its event, and what is recorded of it. */
struct nvtx_mark {
    const struct named_event *event;
    struct message_text message;
    int has; /* HAS_… */
};

static int payload_kind(const struct attributes *of)
{
    switch (of->payload_type) {
    case PAYLOAD_U64:
    case PAYLOAD_U32: return 1;
    case PAYLOAD_I64:
    case PAYLOAD_I32: return 2;
    case PAYLOAD_F64:
    case PAYLOAD_F32: return 3;
    default: return 0;
    }
}

static const struct attributes no_attributes = {0};

/* The members up to the message, which every version has. */
static int is_sound(const struct attributes *of)
{
    return of && of->size >= sizeof *of;
}

/* Turns a mark that can have no event of its own into one with its name as a field. */
static void beyond_limit(struct nvtx_mark *of, int kind)
{
    const struct text *own = kind == KIND_MARK ? mark_name : range_name;
    if (of->message.name && of->message.name != own) {
        of->message.bytes = of->message.name->bytes;
        of->message.size = of->message.name->size;
        of->has |= HAS_TEXT;
    }
    of->message.name = own;
    of->event = event_of(own_domain, own, &shapes[kind][of->has]);
}

static struct nvtx_mark find_mark(const void *domain, const struct attributes *of, int kind, char *room)
{
    struct nvtx_mark found = {NULL, {NULL, "", 0}, 0};
    if (!is_sound(of))
        of = &no_attributes;
    found.message = message_of(of->message_type, of->message, room, MAX_TEXT);
    found.has = (of->category ? HAS_CATEGORY : 0) | (of->color_type == 1 ? HAS_COLOR : 0) |
                payload_kind(of) * HAS_PAYLOAD;
    if (!found.message.name) {
        found.message.name = kind == KIND_MARK ? mark_name : range_name;
        found.has |= found.message.size ? HAS_TEXT : 0;
    }
    found.event = event_of(domain_of(domain), found.message.name, &shapes[kind][found.has]);
    if (!found.event)
        beyond_limit(&found, kind);
    return found;
}

static void put_attributes(struct record *to, const struct nvtx_mark *mark, const struct attributes *of)
{
    if (mark->has & HAS_TEXT)
        put_elements(to, mark->message.bytes, mark->message.size, 1);
    if (mark->has & HAS_CATEGORY)
        put_u32(to, of->category);
    if (mark->has & HAS_COLOR)
        put_u32(to, of->color);
    switch (mark->has & HAS_PAYLOAD * (PAYLOAD_KINDS - 1) ? of->payload_type : PAYLOAD_NONE) {
    case PAYLOAD_U32: put_u64(to, of->payload.u32); break;
    case PAYLOAD_I32: put_u64(to, (uint64_t)(int64_t)of->payload.i32); break;
    case PAYLOAD_F32: put_f64(to, of->payload.f32); break;
    case PAYLOAD_U64:
    case PAYLOAD_I64:
    case PAYLOAD_F64: put_u64(to, of->payload.u64); break;
    default: break;
    }
}

static void domain_mark(const void *domain, const struct attributes *attributes)
{
    char room[MAX_TEXT];
    const struct nvtx_mark mark = find_mark(domain, attributes, KIND_MARK, room);
    struct record record;
    if (!mark.event || !is_wanted(&mark.event->site))
        return;
    record.size = record.tail_count = 0;
    put_attributes(&record, &mark, attributes);
    append_record(&mark.event->site, &record);
}

/* The number of spans that the thread has open in a domain. */
static int level_of(const struct text *domain)
{
    const struct thread_spans *spans = thread_spans;
    const uint32_t depth = !spans ? 0 : spans->depth < MAX_OPEN_SPANS ? spans->depth : MAX_OPEN_SPANS;
    int level = 0;
    uint32_t i;
    for (i = 0; i < depth; ++i)
        level += spans->open[i].group == domain;
    return level;
}

static int domain_push(const void *domain, const struct attributes *attributes)
{
    char room[MAX_TEXT];
    const struct nvtx_mark mark = find_mark(domain, attributes, KIND_RANGE, room);
    const struct text *group = domain_of(domain);
    const int level = level_of(group);
    struct record record;
    record.size = record.tail_count = 0;
    if (!mark.event) {
        open_span(NULL, group, 0);
        return level;
    }
    if (is_wanted(&mark.event->site))
        put_attributes(&record, &mark, attributes);
    begin_span(mark.event, group, &record);
    return level;
}

static int domain_pop(const void *domain)
{
    const struct text *group = domain_of(domain);
    return close_innermost(group) ? level_of(group) : NO_LEVEL;
}

/* -- Ranges that begin and end in any order and thread -- */

/* An id says the number of its event, plus 1, and which of its ranges it is. */
enum { ID_SHIFT = 40 };
static uint64_t next_range;

static uint64_t domain_start(const void *domain, const struct attributes *attributes)
{
    char room[MAX_TEXT];
    const struct nvtx_mark mark = find_mark(domain, attributes, KIND_FLOW, room);
    const uint64_t count = __atomic_add_fetch(&next_range, 1, __ATOMIC_RELAXED) & ((UINT64_C(1) << ID_SHIFT) - 1);
    const uint64_t id = mark.event ? (uint64_t)(mark.event->number + 1) << ID_SHIFT | count : count;
    struct record record;
    if (mark.event && is_wanted(&mark.event->site)) {
        record.size = record.tail_count = 0;
        put_step(&record, id, STEP_START);
        put_attributes(&record, &mark, attributes);
        append_record(&mark.event->site, &record);
    }
    return id;
}

static void domain_end(const void *domain, uint64_t id)
{
    const uint64_t number = id >> ID_SHIFT;
    const struct named_event *event;
    struct record record;
    (void)domain;
    /* Acquire: pairs with the release in `make_event`. */
    if (number == 0 || number > __atomic_load_n(&named_count, __ATOMIC_ACQUIRE))
        return;
    event = event_by_number[number - 1];
    if (event->shape < shapes[KIND_FLOW] || event->shape >= shapes[KIND_FLOW] + SHAPES)
        return;
    /* Attributes are the start's. */
    event = event_of(event->provider, event->name, &shapes[KIND_FLOW][0]);
    if (!event || !is_wanted(&event->site))
        return;
    record.size = record.tail_count = 0;
    put_step(&record, id, STEP_END);
    append_record(&event->site, &record);
}

/* -- The same without attributes, and without a domain -- */

static struct attributes of_text(const char *text)
{
    struct attributes made = {3, sizeof made, .message_type = MESSAGE_TEXT, .message = {.text = text}};
    return made;
}
static struct attributes of_wide(const wchar_t *text)
{
    struct attributes made = {3, sizeof made, .message_type = MESSAGE_WIDE, .message = {.wide = text}};
    return made;
}

static void mark_ex(const struct attributes *attributes)
{
    domain_mark(NULL, attributes);
}
static void mark_text(const char *text)
{
    const struct attributes attributes = of_text(text);
    domain_mark(NULL, &attributes);
}
static void mark_wide(const wchar_t *text)
{
    const struct attributes attributes = of_wide(text);
    domain_mark(NULL, &attributes);
}
static uint64_t start_ex(const struct attributes *attributes)
{
    return domain_start(NULL, attributes);
}
static uint64_t start_text(const char *text)
{
    const struct attributes attributes = of_text(text);
    return domain_start(NULL, &attributes);
}
static uint64_t start_wide(const wchar_t *text)
{
    const struct attributes attributes = of_wide(text);
    return domain_start(NULL, &attributes);
}
static void end(uint64_t id)
{
    domain_end(NULL, id);
}
static int push_ex(const struct attributes *attributes)
{
    return domain_push(NULL, attributes);
}
static int push_text(const char *text)
{
    const struct attributes attributes = of_text(text);
    return domain_push(NULL, &attributes);
}
static int push_wide(const wchar_t *text)
{
    const struct attributes attributes = of_wide(text);
    return domain_push(NULL, &attributes);
}
static int pop(void)
{
    return domain_pop(NULL);
}

/* -- Domains, strings, names of categories, threads and resources -- */

static const void *domain_create(const char *name)
{
    return given_text(name);
}
static const void *domain_create_wide(const wchar_t *name)
{
    return wide_text(name);
}
/* Marks of a domain that is gone may still come: it stays. */
static void domain_destroy(const void *domain)
{
    (void)domain;
}
static const void *register_string(const void *domain, const char *text)
{
    (void)domain;
    return given_text(text);
}
static const void *register_wide(const void *domain, const wchar_t *text)
{
    (void)domain;
    return wide_text(text);
}

static void name_category(const void *domain, uint32_t category, const char *name, size_t size)
{
    const struct named_event *event = event_of(domain_of(domain), category_name, &category_shape);
    struct record record;
    if (!event || !is_wanted(&event->site))
        return;
    record.size = record.tail_count = 0;
    put_u32(&record, category);
    put_elements(&record, name, size, 1);
    append_record(&event->site, &record);
}
static void domain_name_category(const void *domain, uint32_t category, const char *name)
{
    name_category(domain, category, name, name ? strlen(name) : 0);
}
static void domain_name_category_wide(const void *domain, uint32_t category, const wchar_t *name)
{
    char bytes[MAX_TEXT];
    name_category(domain, category, bytes, narrow(bytes, sizeof bytes, name));
}
static void own_name_category(uint32_t category, const char *name)
{
    domain_name_category(NULL, category, name);
}
static void own_name_category_wide(uint32_t category, const wchar_t *name)
{
    domain_name_category_wide(NULL, category, name);
}
static void name_thread(uint32_t thread, const char *name)
{
    TOMPION_EVENT_INIT(nvtx, thread_name, (u32, thread, thread), (str, name, name));
}
static void name_thread_wide(uint32_t thread, const wchar_t *name)
{
    char bytes[MAX_TEXT];
    const size_t size = narrow(bytes, sizeof bytes, name);
    TOMPION_EVENT_INIT(nvtx, thread_name, (u32, thread, thread), (strn, name, bytes, size));
}

static const void *resource_create(const void *domain, const struct resource *of)
{
    const struct named_event *event = event_of(domain_of(domain), resource_name, &resource_shape);
    char room[MAX_TEXT];
    struct message_text name;
    struct record record;
    if (!event || !of || of->size < sizeof *of)
        return NULL;
    if (is_wanted(&event->site)) {
        name = message_of(of->message_type, of->message, room, sizeof room);
        record.size = record.tail_count = 0;
        put_u32(&record, (uint32_t)of->identifier_type);
        put_u64(&record, of->identifier.number);
        if (name.name)
            put_elements(&record, name.name->bytes, name.name->size, 1);
        else
            put_elements(&record, name.bytes, name.size, 1);
        append_record(&event->site, &record);
    }
    return event;
}
static void resource_destroy(const void *resource)
{
    (void)resource;
}

/* -- The program's own means of synchronization -- */

/* Objects are used again when the program has destroyed them. */
struct sync {
    const struct text *domain, *name;
    struct sync *next; /* of those that the program does not have */
    int is_free;
};
enum { MAX_SYNC_OBJECTS = 65536 };
static struct sync *free_sync_objects;
static uint32_t sync_count;

/* Under the lock. NULL if there are too many, or without memory. */
static struct sync *take_sync(void)
{
    struct sync *taken = free_sync_objects;
    if (taken) {
        free_sync_objects = taken->next;
        return taken;
    }
    taken = sync_count < MAX_SYNC_OBJECTS ? take(sizeof *taken) : NULL;
    sync_count += taken != NULL;
    return taken;
}

static void *sync_create(const void *domain, const struct sync_attributes *of)
{
    char room[MAX_TEXT];
    struct sync *made;
    struct message_text name = {NULL, "", 0};
    sigset_t before;
    if (of && of->size >= sizeof *of)
        name = message_of(of->message_type, of->message, room, sizeof room);
    lock_names(&before);
    made = take_sync();
    if (made)
        *made = (struct sync){domain_of(domain), name.name ? name.name : unnamed, NULL, 0};
    unlock_names(&before);
    return made;
}
static void sync_destroy(void *of)
{
    struct sync *sync = of;
    sigset_t before;
    if (!sync)
        return;
    lock_names(&before);
    if (!sync->is_free) {
        sync->is_free = 1;
        sync->next = free_sync_objects;
        free_sync_objects = sync;
    }
    unlock_names(&before);
}
static void append_sync(const struct sync *sync, const struct text *what)
{
    const struct named_event *event = sync ? event_of(sync->domain, what, &sync_shape) : NULL;
    struct record record;
    if (!event || !is_wanted(&event->site))
        return;
    record.size = record.tail_count = 0;
    put_u64(&record, (uintptr_t)sync);
    put_text(&record, sync->name->bytes);
    append_record(&event->site, &record);
}
static void sync_acquire_start(void *sync)
{
    append_sync(sync, sync_start);
}
static void sync_acquire_failed(void *sync)
{
    append_sync(sync, sync_failed);
}
static void sync_acquire_success(void *sync)
{
    append_sync(sync, sync_success);
}
static void sync_release(void *sync)
{
    append_sync(sync, sync_releasing);
}

/* -- The tables -- */

#define AT(number, name) [number] = (function)name
static const function core[] = {
    AT(1, mark_ex), AT(2, mark_text), AT(3, mark_wide), AT(4, start_ex), AT(5, start_text), AT(6, start_wide),
    AT(7, end), AT(8, push_ex), AT(9, push_text), AT(10, push_wide), AT(11, pop), AT(12, own_name_category),
    AT(13, own_name_category_wide), AT(14, name_thread), AT(15, name_thread_wide)};
static const function core2[] = {
    AT(1, domain_mark), AT(2, domain_start), AT(3, domain_end), AT(4, domain_push), AT(5, domain_pop),
    AT(6, resource_create), AT(7, resource_destroy), AT(8, domain_name_category), AT(9, domain_name_category_wide),
    AT(10, register_string), AT(11, register_wide), AT(12, domain_create), AT(13, domain_create_wide),
    AT(14, domain_destroy)};
static const function sync_functions[] = {
    AT(1, sync_create), AT(2, sync_destroy), AT(3, sync_acquire_start), AT(4, sync_acquire_failed),
    AT(5, sync_acquire_success), AT(6, sync_release)};

static int fill_table(const struct callbacks *callbacks, int module, const function *from, unsigned count)
{
    function **table = NULL;
    unsigned size = 0, i;
    if (!callbacks->table_of_module(module, &table, &size) || !table)
        return 0;
    for (i = 1; i < count && i < size; ++i) {
        if (table[i])
            *table[i] = from[i];
    }
    return 1;
}
#define FILL(module, from) fill_table(callbacks, module, from, sizeof(from) / sizeof *(from))

/* What the header calls, once for each copy of it in the process. */
EXPORT int InitializeInjectionNvtx2(const void *(*table)(uint32_t));
int InitializeInjectionNvtx2(const void *(*table)(uint32_t))
{
    const struct callbacks *callbacks = table ? table(TABLE_OF_CALLBACKS) : NULL;
    if (!callbacks || callbacks->struct_size < sizeof *callbacks || !FILL(MODULE_CORE, core)) {
        if (secure_getenv("TOMPION_DEBUG"))
            fprintf(stderr, "tompion: NVTX marks are not recorded: expected the tables of NVTX 3\n");
        return 0;
    }
    FILL(MODULE_CORE2, core2);
    FILL(MODULE_SYNC, sync_functions);
    return 1;
}

__attribute__((constructor(103))) static void make_own_texts(void)
{
    make_shapes();
    own_domain = own_text("nvtx");
    category_name = own_text("category");
    resource_name = own_text("resource");
    range_name = own_text("range");
    mark_name = own_text("mark");
    unnamed = own_text("");
    sync_start = own_text("sync_acquire_start");
    sync_failed = own_text("sync_acquire_failed");
    sync_success = own_text("sync_acquire_success");
    sync_releasing = own_text("sync_releasing");
}
