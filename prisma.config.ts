// Prisma's tools need a schema engine that is downloaded on demand. generate, validate and format never
// run it, so any executable satisfies the check and no download is tried.
import { defineConfig } from 'prisma/config';

process.env.PRISMA_SCHEMA_ENGINE_BINARY ??= process.execPath;

export default defineConfig({
  schema: 'prisma/schema.prisma',
  migrations: { path: 'prisma/migrations' },
});
