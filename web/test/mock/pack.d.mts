/** Writes what lanes show as the server does. */
export function pack(answer: {
  from: number;
  to: number;
  known?: number;
  lanes: { id: number; boxes?: number[]; points?: number[]; bins?: number[] }[];
  labels: string[];
}): ArrayBuffer;
