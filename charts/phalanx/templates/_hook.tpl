{{/* Helm hook: a Job with its own temporary rights. Argument: a dict of root, part, hook, rules, args. */}}
{{- define "phalanx.hook" -}}
{{- $root := .root }}
{{- $values := .root.Values }}
{{- $name := printf "phalanx-%s" .part }}
{{- $own := printf "%s-%s" (include "phalanx.own" $root) .part }}
{{- $hooks := dict "helm.sh/hook" .hook "helm.sh/hook-delete-policy" "before-hook-creation,hook-succeeded" }}
apiVersion: v1
kind: ServiceAccount
metadata:
  name: {{ $name }}
  namespace: {{ $root.Release.Namespace }}
  annotations:
    {{- merge (dict "helm.sh/hook-weight" "-10") $hooks | toYaml | nindent 4 }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata:
  name: {{ $own }}
  annotations:
    {{- merge (dict "helm.sh/hook-weight" "-10") $hooks | toYaml | nindent 4 }}
rules:
  {{- toYaml .rules | nindent 2 }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata:
  name: {{ $own }}
  annotations:
    {{- merge (dict "helm.sh/hook-weight" "-10") $hooks | toYaml | nindent 4 }}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: {{ $own }}}
subjects:
  - {kind: ServiceAccount, name: {{ $name }}, namespace: {{ $root.Release.Namespace }}}
---
apiVersion: batch/v1
kind: Job
metadata:
  name: {{ $name }}
  namespace: {{ $root.Release.Namespace }}
  annotations:
    {{- merge (dict "helm.sh/hook-weight" "-5") $hooks | toYaml | nindent 4 }}
spec:
  backoffLimit: 4
  activeDeadlineSeconds: 300
  template:
    metadata:
      labels:
        {{- include "phalanx.labels" $root | nindent 8 }}
        app.kubernetes.io/component: {{ .part }}
    spec:
      schedulerName: default-scheduler
      restartPolicy: Never
      serviceAccountName: {{ $name }}
      securityContext:
        {{- include "phalanx.podSecurity" $root | nindent 8 }}
      {{- with $values.image.pullSecrets }}
      imagePullSecrets:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with $values.nodeSelector }}
      nodeSelector:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      {{- with $values.tolerations }}
      tolerations:
        {{- toYaml . | nindent 8 }}
      {{- end }}
      containers:
        - name: {{ .part }}
          image: {{ include "phalanx.image" $root }}
          imagePullPolicy: {{ $values.image.pullPolicy }}
          args:
            {{- toYaml .args | nindent 12 }}
          securityContext:
            {{- include "phalanx.containerSecurity" $root | nindent 12 }}
{{- end }}
