{{- define "phalanx.labels" -}}
app.kubernetes.io/name: phalanx
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{/* Selector labels of the pods of one part. Argument: a list of the root and the part. */}}
{{- define "phalanx.selector" -}}
app.kubernetes.io/instance: {{ (index . 0).Release.Name }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end }}

{{- define "phalanx.image" -}}
{{- with .Values.image -}}
{{ .repository }}{{ if .digest }}@{{ .digest }}{{ else }}:{{ .tag | default $.Chart.AppVersion }}{{ end }}
{{- end }}
{{- end }}

{{/* Prefix of the scheduler's lease and ConfigMaps, as in src/phalanx/kube/own_objects.py. */}}
{{- define "phalanx.prefix" -}}
{{- $first := first .Values.schedulerNames }}
{{- $readable := regexReplaceAll "[^a-z0-9]+" (lower $first) "-" | trunc 50 | trimAll "-" | default "phalanx" }}
{{- regexMatch "^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$" $first | ternary $first (printf "%s-%s" $readable (sha256sum $first | trunc 8)) }}
{{- end }}

{{- define "phalanx.lease" -}}
{{- .Values.scheduler.leaseName | default (printf "%s-scheduler" (include "phalanx.prefix" .)) }}
{{- end }}

{{/* Prefix of the release's objects without a namespace or in kube-system, where releases could conflict. */}}
{{- define "phalanx.own" -}}
{{- $usual := and (eq .Release.Name "phalanx") (eq .Release.Namespace "phalanx-system") }}
{{- .Values.clusterNames | default (ternary "phalanx" (printf "%s-%s" .Release.Namespace .Release.Name) $usual) }}
{{- end }}

{{/* Objects shared by all releases, without those that exist already. Argument: a list of the root and the text. */}}
{{- define "phalanx.shared" -}}
{{- $root := index . 0 }}
{{- range $text := regexSplit "(?m)^---$" (index . 1) -1 }}
{{- with fromYaml $text }}
{{- $marks := dict }}
{{- $found := lookup .apiVersion .kind (.metadata.namespace | default "") .metadata.name }}
{{- if $found }}{{ $marks = $found.metadata.annotations | default dict }}{{ end }}
{{- $ours := and (eq (get $marks "meta.helm.sh/release-name") $root.Release.Name) (eq (get $marks "meta.helm.sh/release-namespace") $root.Release.Namespace) }}
{{- if or (not $found) $ours }}
---
{{ $text | trim }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{/* Refusal of values with which no scheduler would start. `phalanx policy lint` checks the rest of a policy. */}}
{{- define "phalanx.checkedPolicy" -}}
{{- with .Values.policy }}
{{- $read := fromYaml . }}
{{- with $read.Error }}{{ fail (printf "policy: no map in YAML: %s" .) }}{{ end }}
{{- $known := concat ($.Files.Get "files/actions.yaml" | fromYamlArray) $.Values.customActions }}
{{- if hasKey $read "actions" }}
{{- if not (kindIs "string" $read.actions) }}{{ fail "policy: actions: expected one string such as \"enqueue, allocate, backfill\"" }}{{ end }}
{{- range splitList "," $read.actions }}
{{- $name := trim . }}
{{- if and $name (not (has $name $known)) }}{{ fail (printf "policy: actions: %s is none of %s; name it in customActions where your image brings it" $name (join ", " $known)) }}{{ end }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{/* Refusal of options that the part does not have in this version; options of another image are not checked. */}}
{{- define "phalanx.checkedArguments" -}}
{{- $known := get (.root.Files.Get "files/options.yaml" | fromYaml) .part }}
{{- $image := .root.Values.image }}
{{- if and $known (not .image) (not $image.digest) (has $image.tag (list "" .root.Chart.AppVersion)) }}
{{- range .settings.extraArgs }}
{{- $option := first (splitList "=" .) }}
{{- if and (hasPrefix "-" $option) (not (has $option $known)) }}{{ fail (printf "%s.extraArgs: phalanx %s has no option %s" $.part $.part $option) }}{{ end }}
{{- end }}
{{- end }}
{{- end }}

{{- define "phalanx.metricsSecret" -}}
{{ .Values.metrics.secure.secretName | default "phalanx-metrics-tls" }}
{{- end }}

{{/* Roles with or without aggregation labels. Argument: a list of the root and the text. */}}
{{- define "phalanx.gathered" -}}
{{- $text := index . 1 }}
{{- if not (index . 0).Values.rbac.aggregate }}{{ $text = regexReplaceAll "(?m)^ +rbac\\.authorization\\.k8s\\.io/aggregate-to-.*\\n" $text "" }}{{ end }}
{{- $text }}
{{- end }}

{{- define "phalanx.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}

{{- define "phalanx.podSecurity" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
fsGroup: 65532
seccompProfile: {type: RuntimeDefault}
{{- end }}

{{/* Deployment of one part and its disruption budget. Argument: a dict of root, part, settings, args, ports, volumes, mounts, and maybe
     an image, env, strategy of its own. */}}
{{- define "phalanx.deployment" -}}
{{- $root := .root }}
{{- $values := .root.Values }}
{{- include "phalanx.checkedArguments" . }}
apiVersion: apps/v1
kind: Deployment
metadata:
  name: phalanx-{{ .part }}
  namespace: {{ $root.Release.Namespace }}
  labels:
    {{- include "phalanx.labels" $root | nindent 4 }}
    app.kubernetes.io/component: {{ .part }}
spec:
  replicas: {{ .settings.replicas }}
  selector:
    matchLabels:
      {{- include "phalanx.selector" (list $root .part) | nindent 6 }}
  {{- with .strategy }}
  strategy:
    {{- toYaml . | nindent 4 }}
  {{- else }}
  strategy:
    # The leader releases its lease when it ends, and a standby takes over, so one missing replica is harmless.
    rollingUpdate: {maxUnavailable: 1, maxSurge: 1}
  {{- end }}
  template:
    metadata:
      labels:
        {{- include "phalanx.labels" $root | nindent 8 }}
        app.kubernetes.io/component: {{ .part }}
        {{- with merge (dict) (.settings.podLabels | default dict) $values.podLabels }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
      {{- with merge (dict) (.settings.podAnnotations | default dict) $values.podAnnotations }}
      annotations:
        {{- toYaml . | nindent 8 }}
      {{- end }}
    spec:
      # The pods of the scheduler cannot be placed by it before it runs.
      schedulerName: default-scheduler
      serviceAccountName: phalanx-{{ .part }}
      priorityClassName: {{ $values.priorityClassName }}
      terminationGracePeriodSeconds: 30
      securityContext:
        {{- include "phalanx.podSecurity" $root | nindent 8 }}
      {{- with $values.image.pullSecrets }}
      imagePullSecrets:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with .settings.nodeSelector | default $values.nodeSelector }}
      nodeSelector:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with .settings.tolerations | default $values.tolerations }}
      tolerations:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with .settings.topologySpreadConstraints | default $values.topologySpreadConstraints }}
      topologySpreadConstraints:
        {{- range . }}
        -
          {{- toYaml . | nindent 10 }}
          {{- if not (hasKey . "labelSelector") }}
          labelSelector:
            matchLabels:
              {{- include "phalanx.selector" (list $root $.part) | nindent 14 }}
          {{- end }}
        {{- end }}
      {{- end }}
      affinity:
        {{- with .settings.affinity | default $values.affinity }}
        {{- toYaml . | nindent 8 }}
        {{- else }}
        podAntiAffinity:
          preferredDuringSchedulingIgnoredDuringExecution:
            {{- range $weight, $key := dict "100" "kubernetes.io/hostname" "50" "topology.kubernetes.io/zone" }}
            - weight: {{ $weight }}
              podAffinityTerm:
                topologyKey: {{ $key }}
                labelSelector:
                  matchLabels:
                    {{- include "phalanx.selector" (list $root $.part) | nindent 20 }}
            {{- end }}
        {{- end }}
      containers:
        - name: {{ .part }}
          image: {{ .image | default (include "phalanx.image" $root) }}
          imagePullPolicy: {{ $values.image.pullPolicy }}
          args:
            {{- concat .args (list (printf "--log-level=%s" $values.logging.level) (printf "--log-format=%s" $values.logging.format)) .settings.extraArgs | toYaml | nindent 12 }}
          {{- with concat (.env | default list) $values.extraEnv (.settings.extraEnv | default list) }}
          env:
            {{- toYaml . | nindent 12 }}
          {{- end }}
          {{- with .ports }}
          ports:
            {{- toYaml . | nindent 12 }}
          {{- end }}
          {{- with .probes }}
          {{- toYaml . | nindent 10 }}
          {{- end }}
          resources:
            {{- toYaml .settings.resources | nindent 12 }}
          securityContext:
            {{- include "phalanx.containerSecurity" $root | nindent 12 }}
          volumeMounts:
            - {name: tmp, mountPath: /tmp}
            {{- with .mounts }}
            {{- toYaml . | nindent 12 }}
            {{- end }}
      volumes:
        - {name: tmp, emptyDir: {}}
        {{- with .volumes }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
{{- if and $values.podDisruptionBudget.enabled (gt (int .settings.replicas) 1) }}
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  name: phalanx-{{ .part }}
  namespace: {{ $root.Release.Namespace }}
  labels:
    {{- include "phalanx.labels" $root | nindent 4 }}
spec:
  maxUnavailable: {{ $values.podDisruptionBudget.maxUnavailable }}
  selector:
    matchLabels:
      {{- include "phalanx.selector" (list $root .part) | nindent 6 }}
{{- end }}
{{- end }}

{{/* Port and probes of the parts that serve health with --metrics-address=0.0.0.0:10253. */}}
{{- define "phalanx.health" -}}
ports:
  - {name: metrics, containerPort: 10253}
probes:
  livenessProbe:
    httpGet: {path: /healthz, port: metrics}
    periodSeconds: 10
    timeoutSeconds: 5
    failureThreshold: 6
  readinessProbe:
    httpGet: {path: /readyz, port: metrics}
    periodSeconds: 5
{{- end }}

{{/* Rights with the annotations of the parts' ServiceAccounts. Argument: a list of the root and the text. */}}
{{- define "phalanx.accountsAnnotated" -}}
{{- $text := index . 1 }}
{{- $values := (index . 0).Values }}
{{- range $part := list "scheduler" "controllers" "webhook" "dashboard" "accounting" "hub" }}
{{- with (get $values $part).serviceAccountAnnotations }}
{{- $head := printf "kind: ServiceAccount\nmetadata:\n  name: phalanx-%s\n" $part }}
{{- $text = replace $head (printf "%s  annotations:\n%s\n" $head (toYaml . | indent 4)) $text }}
{{- end }}
{{- end }}
{{- $text }}
{{- end }}
