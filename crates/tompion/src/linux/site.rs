//! Sites as assembler text. Why: see `crate::site`.

use std::{arch::asm, marker::PhantomData};

use crate::{
    description::{Described, Sizes, measure, write},
    field::Fields,
    site::Site,
};

/// The bytes of an event's description, in units of 16.
struct Description<D, F>(PhantomData<(D, F)>);

impl<D: Described, F: Fields> Description<D, F> {
    /// Sizes of the description.
    const SIZES: Sizes = measure(&D::OUTLINE, F::SHAPES);
    /// Small description; zeros behind its end, as in the others.
    const SMALL: [u128; 16] = write(&D::OUTLINE, F::SHAPES, Self::SIZES);
    /// Medium description.
    const MEDIUM: [u128; 64] = write(&D::OUTLINE, F::SHAPES, Self::SIZES);
    /// Large description.
    const LARGE: [u128; 512] = write(&D::OUTLINE, F::SHAPES, Self::SIZES);
}

/// Puts the address of label 2 into `{address}`.
#[cfg(target_arch = "x86_64")]
macro_rules! address_of_label_2 {
    () => {
        "lea {address}, [rip + 2f]"
    };
}
#[cfg(target_arch = "aarch64")]
macro_rules! address_of_label_2 {
    () => {
        "adrp {address}, 2f\nadd {address}, {address}, :lo12:2f"
    };
}

pub(super) use address_of_label_2;

/// The site of a description that has at most these units and these enumerations.
///
/// Label 2 is the site, 3 the description, 4 the addresses of the enumerations. Labels of digits
/// may be defined many times, so the text may be copied. Operands behind the last unit and the last
/// enumeration are not used.
macro_rules! emit {
    ($class:ident; $($unit:literal)*; $($enumeration:literal)*) => {{
        let site: *const Site;
        // SAFETY: the instructions only compute an address. The sections are data that nothing else
        // in the program defines; every one is left as it was entered.
        unsafe {
            asm!(
                address_of_label_2!(),
                ".pushsection tompion_events,\"a\",@progbits",
                ".balign 16",
                "3:",
                $(concat!(".if {units} > ", stringify!($unit)), ".octa {}", ".endif",)*
                ".popsection",
                ".pushsection tompion_site_data,\"aw\",@progbits",
                ".balign 8",
                "2:",
                ".long 0, 0",
                ".quad 3b",
                ".if {enumerations} > 0",
                ".quad 4f",
                ".else",
                ".quad 0",
                ".endif",
                ".long {kind}, 0",
                "4:",
                $(concat!(".if {enumerations} > ", stringify!($enumeration)), ".quad 3b + {}", ".endif",)*
                ".popsection",
                ".pushsection tompion_sites,\"awR\",@progbits",
                ".balign 8",
                ".quad 2b",
                ".popsection",
                $(const Description::<D, F>::$class[$unit],)*
                $(const Description::<D, F>::SIZES.offsets[$enumeration],)*
                units = const Description::<D, F>::SIZES.units,
                enumerations = const Description::<D, F>::SIZES.enums,
                kind = const D::OUTLINE.asks as u32,
                address = out(reg) site,
                options(pure, nomem, nostack, preserves_flags),
            );
        }
        site
    }};
}

/// The site of an event, at the place in the program where this is called.
#[inline(always)]
pub fn site_of<D: Described, F: Fields>() -> &'static Site {
    let site = if const { fits::<D, F>(16, 4) } {
        small::<D, F>()
    } else if const { fits::<D, F>(64, 16) } {
        medium::<D, F>()
    } else {
        const { assert!(fits::<D, F>(512, 64), "tompion: the event's description takes more than 8192 bytes") };
        large::<D, F>()
    };
    // SAFETY: the site is in the program's memory, aligned, and only its atomics ever change.
    unsafe { &*site }
}

const fn fits<D: Described, F: Fields>(units: usize, enumerations: usize) -> bool {
    let sizes = &Description::<D, F>::SIZES;
    sizes.units <= units && sizes.enums <= enumerations
}

#[inline(always)]
fn small<D: Described, F: Fields>() -> *const Site {
    emit!(SMALL; 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15; 0 1 2 3)
}

#[inline(always)]
fn medium<D: Described, F: Fields>() -> *const Site {
    emit!(MEDIUM;
        0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31
        32 33 34 35 36 37 38 39 40 41 42 43 44 45 46 47 48 49 50 51 52 53 54 55 56 57 58 59 60 61 62 63;
        0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15)
}

#[inline(always)]
fn large<D: Described, F: Fields>() -> *const Site {
    emit!(LARGE;
        0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31 32
        33 34 35 36 37 38 39 40 41 42 43 44 45 46 47 48 49 50 51 52 53 54 55 56 57 58 59 60 61
        62 63 64 65 66 67 68 69 70 71 72 73 74 75 76 77 78 79 80 81 82 83 84 85 86 87 88 89 90
        91 92 93 94 95 96 97 98 99 100 101 102 103 104 105 106 107 108 109 110 111 112 113 114
        115 116 117 118 119 120 121 122 123 124 125 126 127 128 129 130 131 132 133 134 135 136
        137 138 139 140 141 142 143 144 145 146 147 148 149 150 151 152 153 154 155 156 157 158
        159 160 161 162 163 164 165 166 167 168 169 170 171 172 173 174 175 176 177 178 179 180
        181 182 183 184 185 186 187 188 189 190 191 192 193 194 195 196 197 198 199 200 201 202
        203 204 205 206 207 208 209 210 211 212 213 214 215 216 217 218 219 220 221 222 223 224
        225 226 227 228 229 230 231 232 233 234 235 236 237 238 239 240 241 242 243 244 245 246
        247 248 249 250 251 252 253 254 255 256 257 258 259 260 261 262 263 264 265 266 267 268
        269 270 271 272 273 274 275 276 277 278 279 280 281 282 283 284 285 286 287 288 289 290
        291 292 293 294 295 296 297 298 299 300 301 302 303 304 305 306 307 308 309 310 311 312
        313 314 315 316 317 318 319 320 321 322 323 324 325 326 327 328 329 330 331 332 333 334
        335 336 337 338 339 340 341 342 343 344 345 346 347 348 349 350 351 352 353 354 355 356
        357 358 359 360 361 362 363 364 365 366 367 368 369 370 371 372 373 374 375 376 377 378
        379 380 381 382 383 384 385 386 387 388 389 390 391 392 393 394 395 396 397 398 399 400
        401 402 403 404 405 406 407 408 409 410 411 412 413 414 415 416 417 418 419 420 421 422
        423 424 425 426 427 428 429 430 431 432 433 434 435 436 437 438 439 440 441 442 443 444
        445 446 447 448 449 450 451 452 453 454 455 456 457 458 459 460 461 462 463 464 465 466
        467 468 469 470 471 472 473 474 475 476 477 478 479 480 481 482 483 484 485 486 487 488
        489 490 491 492 493 494 495 496 497 498 499 500 501 502 503 504 505 506 507 508 509 510
        511;
        0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27 28 29 30 31
        32 33 34 35 36 37 38 39 40 41 42 43 44 45 46 47 48 49 50 51 52 53 54 55 56 57 58 59 60 61 62 63)
}
